#include "tools/command_line/command_line.hpp"

#include <CLI/CLI.hpp>

namespace mscclpp::cli {

namespace {

constexpr char listSeparator = ',';

template <class T>
CLI::Option* addVariable(CLI::App& app, const std::string& names, T& variable, const std::string& description) {
  return app.add_option(names, variable, description);
}

template <class T>
CLI::Option* addVariable(CLI::App& app, const std::string& names, std::vector<T>& variable,
                         const std::string& description) {
  return app.add_option(names, variable, description)->delimiter(listSeparator);
}

std::string listOf(const NameMap<std::int64_t>& values) {
  std::string list;
  for (const auto& [name, number] : values) list += (list.empty() ? "" : ", ") + name;
  return list;
}

/// Replaces a name by its number. CLI11's own transformer shows the numbers, in --help and in errors.
CLI::Validator numberOf(const NameMap<std::int64_t>& values) {
  return {[values](std::string& text) -> std::string {
            const auto named = values.find(text);
            if (named != values.end()) {
              text = std::to_string(named->second);
              return {};
            }
            for (const auto& [name, number] : values) {
              if (text == std::to_string(number)) return {};
            }
            return "\"" + text + "\" is none of " + listOf(values);
          },
          std::string()};
}

}  // namespace

Option Option::range(int min, int max) {
  option_->check(CLI::Range(min, max));
  return *this;
}

Option Option::range(double min, double max) {
  option_->check(CLI::Range(min, max));
  return *this;
}

Option Option::oneOf(const std::vector<std::string>& texts) {
  option_->check(CLI::IsMember(texts));
  return *this;
}

Option Option::showDefault() {
  option_->capture_default_str();
  return *this;
}

template <class T>
Option Command::add(const std::string& names, T& variable, const std::string& description) {
  return Option(addVariable(*app_, names, variable, description));
}

template Option Command::add(const std::string&, int&, const std::string&);
template Option Command::add(const std::string&, unsigned&, const std::string&);
template Option Command::add(const std::string&, std::uint64_t&, const std::string&);
template Option Command::add(const std::string&, double&, const std::string&);
template Option Command::add(const std::string&, std::string&, const std::string&);
template Option Command::add(const std::string&, std::vector<int>&, const std::string&);
template Option Command::add(const std::string&, std::vector<std::string>&, const std::string&);

template <class Bytes>
Option Command::addBytes(const std::string& names, Bytes& variable, const std::string& description) {
  constexpr bool kiloIs1000 = false;
  return Option(addVariable(*app_, names, variable, description)
                    ->type_name("BYTES")
                    ->transform(CLI::AsSizeValue(kiloIs1000).description("")));
}

template Option Command::addBytes(const std::string&, std::uint64_t&, const std::string&);
template Option Command::addBytes(const std::string&, std::vector<std::uint64_t>&, const std::string&);

void Command::addRest(std::vector<std::string>& variable) {
  app_->prefix_command();
  app_->callback([app = app_, &variable] { variable = app->remaining(); });
}

bool Command::isChosen() const {
  return app_->parsed();
}

void Command::addFlag(const std::string& name, bool& variable, const std::string& description) {
  app_->add_flag(name, variable, description);
}

void Command::addNumber(const std::string& names, const NameMap<std::int64_t>& values,
                        const std::function<void(std::int64_t)>& store, const std::string& description) {
  // CLI11 passes numbers by reference.
  app_->add_option_function<std::int64_t>(
          names, [store](const std::int64_t& number) { store(number); }, description)
      ->type_name("{" + listOf(values) + "}")
      ->transform(numberOf(values));
}

void Command::addNumbers(const std::string& names, const NameMap<std::int64_t>& values,
                         const std::function<void(const std::vector<std::int64_t>&)>& store,
                         const std::string& description) {
  app_->add_option_function<std::vector<std::int64_t>>(names, store, description)
      ->type_name("{" + listOf(values) + "}")
      ->delimiter(listSeparator)
      ->transform(numberOf(values));
}

CommandLine::CommandLine(const std::string& description) : Command(nullptr), root_(new CLI::App(description)) {
  app_ = root_.get();
}

CommandLine::~CommandLine() = default;

Command CommandLine::addCommand(const std::string& name, const std::string& description) {
  root_->require_subcommand(1);
  return Command(root_->add_subcommand(name, description));
}

std::optional<int> CommandLine::parse(int argc, const char* const* argv) {
  try {
    root_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return root_->exit(error);
  }
  return std::nullopt;
}

int CommandLine::reject(const std::string& option, const std::string& reason) const {
  return root_->exit(CLI::ValidationError(option, reason));
}

}  // namespace mscclpp::cli
