#include "options.hpp"

#include "trigger_options.hpp"

namespace mscclpp::bench {

namespace {

const cli::NameMap<Measurement> measurements{
    {"ping_pong", Measurement::PingPong}, {"stream", Measurement::Stream}, {"breakdown", Measurement::Breakdown}};
const cli::NameMap<Operation> operations{{"put_with_signal", Operation::PutWithSignal},
                                         {"put_then_signal", Operation::PutThenSignal},
                                         {"signal", Operation::SignalOnly}};

}  // namespace

std::string nameOf(Measurement measure) {
  return nameOfValue(measurements, measure);
}
std::string nameOf(Operation operation) {
  return nameOfValue(operations, operation);
}
std::string nameOf(ReleaseScope releaseScope) {
  return nameOfValue(releaseScopes, releaseScope);
}

std::optional<int> parse(int argc, char** argv, Options& options) {
  cli::CommandLine commandLine("Times a port channel between two ranks: two GPUs, or two CPU processes.");
  commandLine.add("--device", options.device, "auto, gpu or cpu").oneOf({"auto", "gpu", "cpu"});
  commandLine.addFlag("--one-gpu", options.oneGpu, "both ranks on GPU 0");
  commandLine.addNamed("--measure", options.measurements, measurements,
                       "ping_pong (one way), stream (puts, then a flush), breakdown (host calls)");
  commandLine.addBytes("--sizes", options.sizes, "bytes per message, such as 8,1K,128M");
  commandLine.addNamed("--operation", options.operations, operations, "put_with_signal, put_then_signal, signal");
  addTriggerOptions(commandLine, "put", options.releaseScopes, options.wide);
  commandLine.add("--messages", options.messages, "messages per run; default: by size").range(1, 10'000'000);
  commandLine.add("--repeats", options.repeats, "runs per line; their median is reported").range(1, 1000);
  commandLine.add("--streams", options.streams, "streams that large copies are striped across").range(1, 16);
  commandLine.addBytes("--bytes-per-stream", options.bytesPerStream, "minimum bytes per stream");
  commandLine.add("--fifo-size", options.fifoSize, "slots of the FIFO, a power of two");
  commandLine.add("--pops-per-tail-update", options.popsPerTailUpdate, "pops per update of the device's tail");
  commandLine.add("--sleep-after", options.sleepAfter,
                  "idle microseconds after which the proxy sleeps; default: never");
  commandLine.addFlag("--numa-local", options.numaLocal, "pin the proxy to the GPU's NUMA node");
  commandLine.addFlag("--no-inline-values{false}", options.inlineValues,
                      "send 8 bytes through a copy engine, like larger messages, instead of inline in the request");
  commandLine.addFlag("--json", options.json, "print one line of JSON per case instead of the table");
  return commandLine.parse(argc, argv);
}

}  // namespace mscclpp::bench
