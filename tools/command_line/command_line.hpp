// The command line of a program: a few functions over CLI11. Only their source includes it: its headers take longer to
// compile than most programs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace mscclpp::cli {

/// Maps names on the command line to values of an option.
template <class Value>
using NameMap = std::map<std::string, Value>;

/// What an option accepts, and what --help says of it.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  /// From `min` to `max`.
  Option range(int min, int max);
  Option range(double min, double max);
  Option oneOf(const std::vector<std::string>& texts);
  /// Shows the variable's present value in --help.
  Option showDefault();

 private:
  CLI::Option* option_;
};

/// The options of a program, or of one of its commands. Names are "-n,--ranks", or "test" for a positional argument.
/// parse() writes to the variables, which must live until then; what is not on the command line keeps its value.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  /// T: int, unsigned, std::uint64_t, double, std::string, or for a list with ',': std::vector of int or std::string.
  template <class T>
  Option add(const std::string& names, T& variable, const std::string& description = "");

  /// Numbers of bytes such as 64, 1K or 2MiB. Bytes: std::uint64_t, or std::vector of it for a list.
  template <class Bytes>
  Option addBytes(const std::string& names, Bytes& variable, const std::string& description);

  /// After parse(): whether the arguments named this command.
  bool isChosen() const;

  /// The arguments that follow those of this object, whatever they are: for another program.
  void addRest(std::vector<std::string>& variable);

  /// Sets the variable to true, or to false if the name ends in {false}.
  void addFlag(const std::string& name, bool& variable, const std::string& description);

  /// Values that have names; their numbers are accepted too. Value: an enumeration or an integer.
  template <class Value>
  void addNamed(const std::string& names, Value& variable, const NameMap<Value>& values,
                const std::string& description) {
    addNumber(
        names, numbersOf(values), [&variable](std::int64_t number) { variable = static_cast<Value>(number); },
        description);
  }
  /// A list of them.
  template <class Value>
  void addNamed(const std::string& names, std::vector<Value>& variable, const NameMap<Value>& values,
                const std::string& description) {
    const auto store = [&variable](const std::vector<std::int64_t>& numbers) {
      variable.clear();
      for (const std::int64_t number : numbers) variable.push_back(static_cast<Value>(number));
    };
    addNumbers(names, numbersOf(values), store, description);
  }

 protected:
  CLI::App* app_;

 private:
  template <class Value>
  static NameMap<std::int64_t> numbersOf(const NameMap<Value>& values) {
    NameMap<std::int64_t> numbers;
    for (const auto& [name, value] : values) numbers.emplace(name, static_cast<std::int64_t>(value));
    return numbers;
  }
  void addNumber(const std::string& names, const NameMap<std::int64_t>& values,
                 const std::function<void(std::int64_t)>& store, const std::string& description);
  void addNumbers(const std::string& names, const NameMap<std::int64_t>& values,
                  const std::function<void(const std::vector<std::int64_t>&)>& store, const std::string& description);
};

class CommandLine : public Command {
 public:
  explicit CommandLine(const std::string& description);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// The arguments must then name a command. Its options belong to this object.
  Command addCommand(const std::string& name, const std::string& description);

  /// On --help or an invalid argument prints the help or the reason, and returns the exit code of the program.
  std::optional<int> parse(int argc, const char* const* argv);
  /// For what parse() cannot check: prints the reason in the same form, and returns the exit code of the program.
  int reject(const std::string& option, const std::string& reason) const;

 private:
  std::unique_ptr<CLI::App> root_;
};

}  // namespace mscclpp::cli
