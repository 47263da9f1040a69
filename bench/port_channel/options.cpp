#include "options.hpp"

#include <CLI/CLI.hpp>
#include <map>

namespace mscclpp::bench {

namespace {

const std::map<std::string, Measure> measures{
    {"ping_pong", Measure::PingPong}, {"stream", Measure::Stream}, {"parts", Measure::Parts}};
const std::map<std::string, Form> forms{
    {"put_with_signal", Form::PutWithSignal}, {"put_then_signal", Form::PutThenSignal}, {"signal", Form::SignalOnly}};
const std::map<std::string, Publish> publishes{
    {"nothing", Publish::Nothing}, {"device", Publish::Device}, {"system", Publish::System}};
const std::map<std::string, int> layouts{{"compact", 0}, {"wide", 1}};

template <class Value>
std::string keyOf(const std::map<std::string, Value>& names, Value value) {
  for (const auto& [name, each] : names) {
    if (each == value) return name;
  }
  return "?";
}

}  // namespace

std::string nameOf(Measure measure) {
  return keyOf(measures, measure);
}
std::string nameOf(Form form) {
  return keyOf(forms, form);
}
std::string nameOf(Publish publish) {
  return keyOf(publishes, publish);
}

bool parse(int argc, char** argv, Options& options, int& code) {
  CLI::App app{"Times a port channel between two ranks: two GPUs, or two CPU processes."};
  const CLI::AsSizeValue bytes(false);
  app.add_option("--device", options.device, "auto, gpu or cpu")->check(CLI::IsMember({"auto", "gpu", "cpu"}));
  app.add_flag("--one-gpu", options.oneGpu, "both ranks on GPU 0");
  app.add_option("--measure", options.measures, "ping_pong (one way), stream (puts, then a flush), parts (host calls)")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(measures));
  app.add_option("--sizes", options.sizes, "bytes a message, as in 8,1K,128M")->delimiter(',')->transform(bytes);
  app.add_option("--form", options.forms, "put_with_signal, put_then_signal, signal")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(forms));
  app.add_option("--publish", options.publishes, "which earlier writes a put waits for: nothing, device, system")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(publishes));
  app.add_option("--trigger", options.wide, "compact (16 bytes) or wide (64)")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(layouts));
  app.add_option("--messages", options.messages, "messages a run; default: by size")->check(CLI::Range(1, 10'000'000));
  app.add_option("--repeats", options.repeats, "runs of a line, of which the median counts")
      ->check(CLI::Range(1, 1000));
  app.add_option("--streams", options.streams, "streams that large copies are cut over")->check(CLI::Range(1, 16));
  app.add_option("--bytes-per-stream", options.bytesPerStream, "least length of a part")->transform(bytes);
  app.add_option("--fifo-size", options.fifoSize, "slots of the FIFO, a power of two");
  app.add_option("--pops-per-report", options.popsPerReport, "pops between two that tell the device");
  app.add_option("--sleep-after", options.sleepAfter, "microseconds of idling until the proxy naps; default: never");
  app.add_flag("--near", options.near, "keep the proxy on the GPU's NUMA node");
  app.add_flag("--no-values{false}", options.values, "8 bytes go through a copy engine as more do, not in the request");
  app.add_flag("--json", options.json, "a line of JSON for each case instead of the table");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    code = app.exit(error);
    return false;
  }
  return true;
}

}  // namespace mscclpp::bench
