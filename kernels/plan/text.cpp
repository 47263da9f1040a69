#include "mscclpp/kernels/plan/text.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>

#include "draft.hpp"
#include "json_schema.hpp"
#include "message.hpp"

namespace mscclpp::plan {

namespace {

constexpr const char* bufferWords[] = {"input", "output", "scratch"};

struct SynchronisationWord {
  const char* word;
  OperationKind kind;
};
/// Operations that are a word and numbers.
constexpr SynchronisationWord synchronisationWords[] = {
    {"signal", OperationKind::Signal}, {"wait", OperationKind::Wait},       {"flush", OperationKind::Flush},
    {"sync", OperationKind::Sync},     {"acquire", OperationKind::Acquire}, {"release", OperationKind::Release},
    {"end", OperationKind::LoopEnd}};

void writeOperand(std::ostream& text, const Operand& operand) {
  text << bufferWords[static_cast<int>(operand.buffer)] << '[' << operand.first << ']';
  if (operand.access == Access::Memory || operand.access == Access::Port) text << '@' << operand.rank;
  if (operand.access == Access::Port) text << ":port" << operand.channel;
  if (operand.access == Access::Switch) text << "@switch" << operand.channel;
  if (operand.form == Form::Packet) text << ".packets";
}

void writeStep(std::ostream& text, const Step& step) {
  const Operation& operation = step.operation;
  switch (operation.kind) {
    case OperationKind::Transfer: {
      text << "transfer " << operation.chunks << " at " << operation.position;
      if (operation.shares > 1) text << " share " << operation.share << " of " << operation.shares;
      const char* between = ": ";
      for (const Operand& operand : step.sources) {
        text << between;
        writeOperand(text, operand);
        between = " + ";
      }
      between = " -> ";
      for (const Operand& operand : step.destinations) {
        text << between;
        writeOperand(text, operand);
        between = ", ";
      }
      break;
    }
    case OperationKind::Barrier:
      text << "barrier " << operation.index << " of " << operation.blocks;
      break;
    case OperationKind::LoopBegin:
      text << "loop " << operation.unitBytes;
      break;
    default:
      for (const SynchronisationWord& entry : synchronisationWords) {
        if (entry.kind == operation.kind) text << entry.word;
      }
      if (operation.relaxed) text << " relaxed";
      for (const int reference : step.references) text << ' ' << reference;
  }
}

/// The words, numbers and signs of a line. A comment (#) ends it.
class Line {
 public:
  Line(std::string_view text, int number) : number_(number) {
    for (std::size_t i = 0; i < text.size();) {
      const char c = text[i];
      if (c == ' ' || c == '\t' || c == '\r') {
        ++i;
      } else if (c == '#') {
        const std::size_t start = text.find_first_not_of(" \t", i + 1);
        if (start != std::string_view::npos) comment_ = text.substr(start, text.find_last_not_of(" \t\r") + 1 - start);
        break;
      } else if (c == '"') {
        std::string name = "\"";  // the mark tells it from a word; there is none at its end
        for (++i; i < text.size() && text[i] != '"'; ++i) {
          if (text[i] == '\\' && i + 1 < text.size()) ++i;
          name += text[i];
        }
        if (i == text.size()) fail("a quotation mark is missing");
        tokens_.push_back(std::move(name));
        ++i;
      } else {
        const auto isWord = [](char x) { return std::isalnum(static_cast<unsigned char>(x)) != 0 || x == '_'; };
        std::size_t end = i + 1;
        if (isWord(c)) {
          while (end < text.size() &&
                 (isWord(text[end]) || (text[end] == '-' && end + 1 < text.size() && text[end + 1] != '>'))) {
            ++end;
          }
        } else if (c == '-' && end < text.size() && text[end] == '>') {
          ++end;
        } else {
          while (end < text.size() && continuesCharacter(text[end])) ++end;
        }
        tokens_.push_back(std::string(text.substr(i, end - i)));
        i = end;
      }
    }
  }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... why) const {
    reject("plan, line ", number_, ": ", why...);
  }
  bool atEnd() const { return next_ == tokens_.size(); }
  const std::string& comment() const { return comment_; }
  std::string peek() const { return atEnd() ? "the end of the line" : quoted(tokens_[next_]); }
  std::string take() {
    if (atEnd()) fail("the line is too short");
    return tokens_[next_++];
  }
  bool accept(std::string_view token) {
    if (atEnd() || tokens_[next_] != token) return false;
    ++next_;
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("expected ", token, ", found ", peek());
  }
  template <class T = int>
  T number(T max = std::numeric_limits<T>::max()) {
    const std::string token = take();
    T value{};
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
    if (error != std::errc() || end != token.data() + token.size() || value > max) {
      fail("expected a number up to ", max, ", found ", quoted(token));
    }
    return value;
  }
  std::vector<int> numbers() {
    std::vector<int> list;
    while (!atEnd()) list.push_back(number());
    return list;
  }
  /// A word with a number at its end, such as port3.
  std::int16_t numberAfter(std::string_view word) {
    const std::string token = take();
    std::int16_t value = 0;
    if (!token.starts_with(word)) fail("expected ", word, " and a number, found ", quoted(token));
    const auto [end, error] = std::from_chars(token.data() + word.size(), token.data() + token.size(), value);
    if (error != std::errc() || end != token.data() + token.size()) {
      fail("expected ", word, " and a number up to ", std::numeric_limits<std::int16_t>::max(), ", found ",
           quoted(token));
    }
    return value;
  }
  bool startsWith(std::string_view word) const { return !atEnd() && tokens_[next_].starts_with(word); }

 private:
  int number_;
  std::vector<std::string> tokens_;
  std::string comment_;
  std::size_t next_ = 0;
};

constexpr std::int16_t maxShort = std::numeric_limits<std::int16_t>::max();

class TextReader {
 public:
  Draft read(std::string_view text) {
    int number = 0;
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      Line line(text.substr(0, end), ++number);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      if (line.atEnd()) continue;
      readLine(line);
      if (!line.atEnd()) line.fail("unexpected ", line.peek());
    }
    if (!hasHeader_) reject("plan: there is no line that starts with plan");
    return std::move(draft_);
  }

 private:
  void readLine(Line& line) {
    if (line.accept("plan")) return readHeader(line);
    if (!hasHeader_) line.fail("the first line starts with plan");
    if (line.accept("rank")) return readRank(line);
    if (line.accept("expect")) return readExpectation(line);
    if (rank_ < 0) line.fail("a line that starts with rank is missing before");
    DraftRank& rank = draft_.ranks[rank_];
    if (line.accept("channel")) return readChannel(line, rank);
    if (line.accept("semaphore")) {
      if (line.number() != countOf(rank.semaphores)) line.fail("semaphores are numbered from 0, in order");
      rank.semaphores.push_back(line.accept("initially") ? line.number() : 0);
    } else if (line.accept("block")) {
      if (line.number() != countOf(rank.blocks)) line.fail("blocks are numbered from 0, in order");
      rank.blocks.emplace_back();
    } else {
      if (rank.blocks.empty()) line.fail("a line that starts with block is missing before");
      Step step = readStep(line);
      step.operation.origin = draft_.origin(line.comment());
      rank.blocks.back().push_back(std::move(step));
    }
  }

  void readHeader(Line& line) {
    if (hasHeader_) line.fail("a second plan");
    hasHeader_ = true;
    std::string name = line.take();
    if (name.front() != '"') line.fail("expected a name in quotation marks");
    const std::string collective = line.take();
    const CollectiveName* found = findCollective(collective);
    if (found == nullptr) line.fail("there is no collective ", quoted(collective));
    Header header{.collective = found->kind};
    while (!line.atEnd()) {
      if (line.accept("ranks")) {
        header.ranks = line.number<int>(maxShort);
      } else if (line.accept("chunks")) {
        header.chunksPerPart = line.number();
      } else if (line.accept("root")) {
        header.root = line.number();
      } else if (line.accept("in-place")) {
        header.inPlace = true;
      } else if (line.accept("threads")) {
        header.threadsPerBlock = line.number();
      } else if (line.accept("alignment")) {
        header.alignment = line.number();
      } else if (line.accept("from")) {
        header.minBytes = line.number<std::uint64_t>();
      } else if (line.accept("to")) {
        header.maxBytes = line.number<std::uint64_t>();
      } else if (line.accept("double-scratch")) {
        header.doubleScratch = true;
      } else if (line.accept("reuse-resources")) {
        header.reuseResources = true;
      } else {
        line.fail("unexpected ", line.peek());
      }
    }
    if (header.ranks < 1) line.fail("the number of ranks is missing");
    draft_ = makeDraft(header, name.substr(1));
  }

  void readRank(Line& line) {
    rank_ = line.number();
    if (rank_ < 0 || rank_ >= draft_.header.ranks) line.fail("rank ", rank_, " does not exist");
    DraftRank& rank = draft_.ranks[rank_];
    while (!line.atEnd()) {
      if (line.accept("input")) {
        rank.inputChunks = line.number();
      } else if (line.accept("output")) {
        rank.outputChunks = line.number();
      } else {
        line.expect("scratch");
        rank.scratchChunks = line.number();
      }
    }
  }

  void readChannel(Line& line, DraftRank& rank) {
    if (line.number() != countOf(rank.channels)) line.fail("channels are numbered from 0, in order");
    DraftChannel channel;
    if (line.accept("switch")) {
      channel = {Access::Switch, rank_, readBuffer(line), line.numbers()};
    } else {
      channel.access = line.accept("port") ? Access::Port : Access::Memory;
      if (channel.access == Access::Memory) line.expect("memory");
      channel.peer = line.number<int>(maxShort);
    }
    rank.channels.push_back(std::move(channel));
  }

  void readExpectation(Line& line) {
    DraftExpectation expectation{line.number<int>(maxShort)};
    expectation.chunk = line.number();
    line.expect(":");
    do {
      const int rank = line.number<int>(maxShort);
      line.expect("[");
      expectation.contributions.emplace_back(rank, line.number());
      line.expect("]");
    } while (line.accept("+"));
    draft_.expectations.push_back(std::move(expectation));
  }

  static BufferKind readBuffer(Line& line) {
    const std::string word = line.take();
    for (const BufferKind buffer : {BufferKind::Input, BufferKind::Output, BufferKind::Scratch}) {
      if (word == bufferWords[static_cast<int>(buffer)]) return buffer;
    }
    line.fail("expected input, output or scratch, found ", quoted(word));
  }

  Operand readOperand(Line& line) const {
    Operand operand{.buffer = readBuffer(line), .rank = static_cast<std::int16_t>(rank_)};
    line.expect("[");
    operand.first = line.number();
    line.expect("]");
    if (line.accept("@")) {
      if (line.startsWith("switch")) {
        operand.access = Access::Switch;
        operand.channel = line.numberAfter("switch");
      } else {
        operand.access = Access::Memory;
        operand.rank = line.number<std::int16_t>();
        if (line.accept(":")) {
          operand.access = Access::Port;
          operand.channel = line.numberAfter("port");
        }
      }
    }
    if (line.accept(".")) {
      line.expect("packets");
      operand.form = Form::Packet;
    }
    return operand;
  }

  Step readStep(Line& line) const {
    Step step;
    Operation& operation = step.operation;
    const std::string word = line.take();
    if (word == "transfer") {
      operation.kind = OperationKind::Transfer;
      operation.chunks = line.number();
      if (line.accept("at")) operation.position = line.number();
      if (line.accept("share")) {
        operation.share = line.number<std::int16_t>();
        line.expect("of");
        operation.shares = line.number<std::int16_t>();
      }
      line.expect(":");
      do step.sources.push_back(readOperand(line));
      while (line.accept("+"));
      line.expect("->");
      do step.destinations.push_back(readOperand(line));
      while (line.accept(","));
    } else if (word == "barrier") {
      operation.kind = OperationKind::Barrier;
      operation.index = line.number();
      line.expect("of");
      operation.blocks = line.number();
    } else if (word == "loop") {
      operation.kind = OperationKind::LoopBegin;
      operation.unitBytes = line.number<std::uint64_t>();
    } else {
      const auto* found = std::find_if(std::begin(synchronisationWords), std::end(synchronisationWords),
                                       [&](const SynchronisationWord& entry) { return word == entry.word; });
      if (found == std::end(synchronisationWords)) line.fail("there is no operation ", quoted(word));
      operation.kind = found->kind;
      operation.relaxed = line.accept("relaxed");
      step.references = line.numbers();
    }
    return step;
  }

  Draft draft_;
  bool hasHeader_ = false;
  int rank_ = -1;
};

}  // namespace

std::string toText(const NamedPlan& plan) {
  const Draft draft = draftOf(plan);
  const Header defaults;
  std::ostringstream text;
  text << "plan \"";
  for (const char c : plan.name) text << (c == '"' || c == '\\' ? "\\" : "") << c;
  text << "\" " << keyOf(plan.collective) << " ranks " << plan.ranks << " chunks " << plan.chunksPerPart;
  if (plan.root != 0) text << " root " << plan.root;
  if (plan.inPlace) text << " in-place";
  text << " threads " << plan.threadsPerBlock;
  if (plan.alignment != defaults.alignment) text << " alignment " << plan.alignment;
  if (plan.minBytes != defaults.minBytes) text << " from " << plan.minBytes;
  if (plan.maxBytes != defaults.maxBytes) text << " to " << plan.maxBytes;
  if (plan.doubleScratch) text << " double-scratch";
  if (plan.reuseResources) text << " reuse-resources";
  text << '\n';
  for (const DraftExpectation& expectation : draft.expectations) {
    text << "expect " << expectation.rank << ' ' << expectation.chunk;
    const char* between = ": ";
    for (const auto& [rank, chunk] : expectation.contributions) {
      text << between << rank << '[' << chunk << ']';
      between = " + ";
    }
    text << '\n';
  }
  for (int r = 0; r < plan.ranks; ++r) {
    const DraftRank& rank = draft.ranks[r];
    text << "rank " << r;
    if (plan.collective == CollectiveKind::Custom) {
      text << " input " << rank.inputChunks << " output " << rank.outputChunks;
    }
    if (rank.scratchChunks > 0) text << " scratch " << rank.scratchChunks;
    text << '\n';
    for (int c = 0; c < countOf(rank.channels); ++c) {
      const DraftChannel& channel = rank.channels[c];
      text << "  channel " << c << ' ' << keyOf(channel.access) << ' ';
      if (channel.access == Access::Switch) {
        text << bufferWords[static_cast<int>(channel.buffer)];
        for (const int member : channel.members) text << ' ' << member;
      } else {
        text << channel.peer;
      }
      text << '\n';
    }
    for (int s = 0; s < countOf(rank.semaphores); ++s) {
      text << "  semaphore " << s;
      if (rank.semaphores[s] != 0) text << " initially " << rank.semaphores[s];
      text << '\n';
    }
    for (int b = 0; b < countOf(rank.blocks); ++b) {
      text << "  block " << b << '\n';
      bool inLoop = false;
      for (const Step& step : rank.blocks[b]) {
        if (step.operation.kind == OperationKind::LoopEnd) inLoop = false;
        text << (inLoop ? "      " : "    ");
        writeStep(text, step);
        if (step.operation.kind == OperationKind::LoopBegin) inLoop = true;
        if (step.operation.origin >= 0) text << "    # " << draft.origins[step.operation.origin];
        text << '\n';
      }
    }
  }
  return text.str();
}

NamedPlan fromText(std::string_view text) {
  return lower(TextReader().read(text));
}

}  // namespace mscclpp::plan
