#include "options.hpp"

#include <CLI/CLI.hpp>

#include "trigger_options.hpp"

namespace mscclpp::bench {

namespace {

const Names<Measure> measures{{"ping_pong", Measure::PingPong}, {"stream", Measure::Stream}, {"parts", Measure::Parts}};
const Names<Form> forms{
    {"put_with_signal", Form::PutWithSignal}, {"put_then_signal", Form::PutThenSignal}, {"signal", Form::SignalOnly}};

}  // namespace

std::string nameOf(Measure measure) {
  return nameIn(measures, measure);
}
std::string nameOf(Form form) {
  return nameIn(forms, form);
}
std::string nameOf(Publish publish) {
  return nameIn(publishes, publish);
}

bool parse(int argc, char** argv, Options& options, int& code) {
  CLI::App app{"Times a port channel between two ranks: two GPUs, or two CPU processes."};
  const CLI::AsSizeValue bytes(false);
  app.add_option("--device", options.device, "auto, gpu or cpu")->check(CLI::IsMember({"auto", "gpu", "cpu"}));
  app.add_flag("--one-gpu", options.oneGpu, "both ranks on GPU 0");
  addNamed(app, "--measure", options.measures, measures,
           "ping_pong (one way), stream (puts, then a flush), parts (host calls)");
  app.add_option("--sizes", options.sizes, "bytes a message, as in 8,1K,128M")->delimiter(',')->transform(bytes);
  addNamed(app, "--form", options.forms, forms, "put_with_signal, put_then_signal, signal");
  addTriggerOptions(app, "put", options.publishes, options.wide);
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
