#include "host/trace/trace_names.hpp"

namespace mscclpp::detail {

std::string nameOf(TriggerType request) {
  std::string text;
  const auto add = [&](TriggerType bit, const char* name) {
    if ((request & bit) != 0) text += (text.empty() ? "" : " + ") + std::string(name);
  };
  add(TriggerData, "put");
  add(TriggerValue, "put of a value");
  add(TriggerFlag, "signal");
  add(TriggerSync, "flush");
  return text;
}

std::map<TraceId, TraceNames> traceNamesOfLibrary() {
  std::map<TraceId, TraceNames> names{
      {TraceId::AllReduce, {"all_reduce", "bytes", ""}},
      {TraceId::Push, {"push", "step", ""}},
      {TraceId::Reduce, {"reduce", "step", ""}},
      {TraceId::Collect, {"collect", "step", ""}},
      {TraceId::Publish, {"publish", "step", ""}},
      {TraceId::Wait, {"wait", "peer", ""}},
      {TraceId::Trigger, {"trigger", "position", ""}},
      {TraceId::Idle, {"idle", "", ""}},
      {TraceId::FlushComplete, {"flush_complete", "semaphore", ""}},
      {TraceId::AllGather, {"all_gather", "bytes", ""}},
      {TraceId::ReduceScatter, {"reduce_scatter", "bytes", ""}},
      {TraceId::AllToAll, {"all_to_all", "bytes", ""}},
      {TraceId::Broadcast, {"broadcast", "bytes", ""}},
      {TraceId::ReduceToRoot, {"reduce_to_root", "bytes", ""}},
      {TraceId::Gather, {"gather", "bytes", ""}},
      {TraceId::Scatter, {"scatter", "bytes", ""}},
      {TraceId::SendReceive, {"send_receive", "bytes", ""}},
  };
  for (TriggerType type = 0; type < 16; ++type) {
    const auto id = static_cast<TraceId>(static_cast<TriggerType>(TraceId::Request) + type);
    const std::string name = nameOf(type);
    names.emplace(id, TraceNames{name.empty() ? "bad request" : name, "bytes", "semaphore"});
  }
  return names;
}

}  // namespace mscclpp::detail
