// The calls of the backend: what torch.distributed passes, as operations.
#include <algorithm>
#include <string>
#include <utility>

#include "backend.hpp"
#include "mscclpp/host/base/error.hpp"
#include "tensors.hpp"

namespace mscclpp::torch_c10d {

namespace {

Operation operationOf(c10d::OpType type, const char* name, const Backend::Tensors& tensors, bool isAsync,
                      std::chrono::milliseconds timeout) {
  Operation operation;
  operation.type = type;
  operation.name = name;
  operation.isAsync = isAsync;
  operation.timeout = timeout;
  if (tensors.empty()) throwWrong(operation, "there is no tensor");
  operation.device = tensors.front().device();
  return operation;
}

/// The list of the only tensor: a process has one rank.
const Backend::Tensors& onlyList(const Operation& operation, const std::vector<Backend::Tensors>& lists) {
  if (lists.size() != 1) {
    throwWrong(operation, "there are " + std::to_string(lists.size()) + " lists of tensors, it takes one");
  }
  return lists.front();
}

void keep(Operation& operation, const Backend::Tensors& inputs) {
  operation.kept.insert(operation.kept.end(), inputs.begin(), inputs.end());
}

}  // namespace

int Backend::requireRoot(const Operation& operation, std::int64_t root) const {
  if (root < 0 || root >= getSize()) {
    throwWrong(operation, "there is no rank " + std::to_string(root) + " in the group, the last one is " +
                              std::to_string(getSize() - 1));
  }
  return static_cast<int>(root);
}

// Data that is only moved is a number of bytes, of any type.

Backend::Works Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Operation operation =
      operationOf(c10d::OpType::BROADCAST, "mscclpp:broadcast", tensors, options.asyncOp, options.timeout);
  requireTensors(operation, tensors, 1);
  const at::Tensor& tensor = tensors.front();
  operation.calls.push_back({.collective = CollectiveType::Broadcast,
                             .input = tensor.data_ptr(),
                             .output = tensor.data_ptr(),
                             .count = tensor.nbytes(),
                             .type = DataType::UINT8,
                             .root = requireRoot(operation, options.rootRank)});
  operation.outputs = tensors;
  return submit(std::move(operation));
}

void Backend::addAllReduce(Operation& operation, const at::Tensor& tensor, const c10d::ReduceOp& op) const {
  operation.calls.push_back({.collective = CollectiveType::AllReduce,
                             .input = tensor.data_ptr(),
                             .output = tensor.data_ptr(),
                             .count = static_cast<std::size_t>(tensor.numel()),
                             .type = toDataType(operation, tensor),
                             .reduction = toReduction(operation, op, tensor)});
  operation.outputs.push_back(tensor);
}

Backend::Works Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  Operation operation =
      operationOf(c10d::OpType::ALLREDUCE, "mscclpp:all_reduce", tensors, options.asyncOp, options.timeout);
  requireTensors(operation, tensors, 1);
  addAllReduce(operation, tensors.front(), options.reduceOp);
  return submit(std::move(operation));
}

Backend::Works Backend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  Operation operation = operationOf(c10d::OpType::ALLREDUCE_COALESCED, "mscclpp:all_reduce_coalesced", tensors,
                                    options.asyncOp, options.timeout);
  requireTensors(operation, tensors, tensors.size());
  for (const at::Tensor& tensor : tensors) addAllReduce(operation, tensor, options.reduceOp);
  return submit(std::move(operation));
}

Backend::Works Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Operation operation = operationOf(c10d::OpType::REDUCE, "mscclpp:reduce", tensors, options.asyncOp, options.timeout);
  requireTensors(operation, tensors, 1);
  const at::Tensor& tensor = tensors.front();
  const int root = requireRoot(operation, options.rootRank);
  operation.calls.push_back({.collective = CollectiveType::Reduce,
                             .input = tensor.data_ptr(),
                             .output = root == getRank() ? tensor.data_ptr() : nullptr,
                             .count = static_cast<std::size_t>(tensor.numel()),
                             .type = toDataType(operation, tensor),
                             .reduction = toReduction(operation, options.reduceOp, tensor),
                             .root = root});
  operation.outputs = tensors;
  return submit(std::move(operation));
}

void Backend::addAllGather(Operation& operation, const at::Tensor& output, const at::Tensor& input) const {
  requireTensor(operation, output);
  requireTensor(operation, input);
  requireElements(operation, output, input, getSize());
  operation.calls.push_back({.collective = CollectiveType::AllGather,
                             .input = input.data_ptr(),
                             .output = output.data_ptr(),
                             .count = input.nbytes(),
                             .type = DataType::UINT8});
  operation.outputs.push_back(output);
  operation.kept.push_back(input);
}

Backend::Works Backend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  Operation operation = operationOf(c10d::OpType::_ALLGATHER_BASE, "mscclpp:all_gather_into_tensor", {input},
                                    options.asyncOp, options.timeout);
  addAllGather(operation, output, input);
  return submit(std::move(operation));
}

Backend::Works Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                        const c10d::AllgatherOptions& options) {
  Operation operation = operationOf(c10d::OpType::COALESCED, "mscclpp:all_gather_into_tensor_coalesced", inputs,
                                    options.asyncOp, options.timeout);
  requireTensors(operation, outputs, inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) addAllGather(operation, outputs[i], inputs[i]);
  return submit(std::move(operation));
}

/// inputs[r] goes to rank r, and outputs[r] gets what rank r sends here. Lists are exchanged, whatever their tensors:
/// ranks must choose alike, and only this one sees whether its tensors could be one buffer.
void Backend::addExchange(Operation& operation, const Tensors& outputs, const Tensors& inputs) const {
  requireTensors(operation, outputs, outputs.size());
  requireTensors(operation, inputs, inputs.size());
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    operation.sends.push_back({inputs[r].data_ptr(), inputs[r].nbytes(), static_cast<int>(r)});
  }
  for (std::size_t r = 0; r < outputs.size(); ++r) {
    operation.receives.push_back({outputs[r].data_ptr(), outputs[r].nbytes(), static_cast<int>(r)});
  }
  operation.outputs.insert(operation.outputs.end(), outputs.begin(), outputs.end());
  keep(operation, inputs);
  const auto own = static_cast<std::size_t>(getRank());
  if (!inputs.empty() && !outputs.empty()) requireElements(operation, outputs.at(own), inputs.at(own), 1);
}

Backend::Works Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) {
  Operation operation =
      operationOf(c10d::OpType::ALLGATHER, "mscclpp:all_gather", inputs, options.asyncOp, options.timeout);
  requireTensors(operation, inputs, 1);
  const Tensors& list = onlyList(operation, outputs);
  const auto size = static_cast<std::size_t>(getSize());
  requireTensors(operation, list, size);
  addExchange(operation, list, Tensors(size, inputs.front()));
  return submit(std::move(operation));
}

Backend::Works Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& options) {
  Operation operation = operationOf(c10d::OpType::ALLGATHER_COALESCED, "mscclpp:all_gather_coalesced", inputs,
                                    options.asyncOp, options.timeout);
  const auto size = static_cast<std::size_t>(getSize());
  if (outputs.size() != size) throwWrong(operation, "it takes a list of outputs for each rank");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors list;
    for (const Tensors& ofRank : outputs) {
      if (ofRank.size() != inputs.size()) throwWrong(operation, "each list of outputs has as many tensors as inputs");
      list.push_back(ofRank[i]);
    }
    addExchange(operation, list, Tensors(size, inputs[i]));
  }
  return submit(std::move(operation));
}

Backend::Works Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  Operation operation = operationOf(c10d::OpType::GATHER, "mscclpp:gather", inputs, options.asyncOp, options.timeout);
  requireTensors(operation, inputs, 1);
  const int root = requireRoot(operation, options.rootRank);
  if (root == getRank()) {
    const Tensors& list = onlyList(operation, outputs);
    requireTensors(operation, list, static_cast<std::size_t>(getSize()));
    addExchange(operation, list, {});
    requireElements(operation, list[static_cast<std::size_t>(root)], inputs.front(), 1);
  } else if (!outputs.empty()) {
    throwWrong(operation, "only the root has outputs");
  }
  operation.sends.push_back({inputs.front().data_ptr(), inputs.front().nbytes(), root});
  keep(operation, inputs);
  return submit(std::move(operation));
}

Backend::Works Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  Operation operation =
      operationOf(c10d::OpType::SCATTER, "mscclpp:scatter", outputs, options.asyncOp, options.timeout);
  requireTensors(operation, outputs, 1);
  const int root = requireRoot(operation, options.rootRank);
  if (root == getRank()) {
    const Tensors& list = onlyList(operation, inputs);
    requireTensors(operation, list, static_cast<std::size_t>(getSize()));
    requireElements(operation, list[static_cast<std::size_t>(root)], outputs.front(), 1);
    addExchange(operation, {}, list);
  } else if (!inputs.empty()) {
    throwWrong(operation, "only the root has inputs");
  }
  operation.receives.push_back({outputs.front().data_ptr(), outputs.front().nbytes(), root});
  operation.outputs = outputs;
  return submit(std::move(operation));
}

void Backend::addReduceScatter(Operation& operation, const at::Tensor& output, const at::Tensor& input,
                               const c10d::ReduceOp& op) const {
  requireTensor(operation, output);
  requireTensor(operation, input);
  requireElements(operation, input, output, getSize());
  operation.calls.push_back({.collective = CollectiveType::ReduceScatter,
                             .input = input.data_ptr(),
                             .output = output.data_ptr(),
                             .count = static_cast<std::size_t>(output.numel()),
                             .type = toDataType(operation, output),
                             .reduction = toReduction(operation, op, output)});
  operation.outputs.push_back(output);
  operation.kept.push_back(input);
}

Backend::Works Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                             const c10d::ReduceScatterOptions& options) {
  Operation operation = operationOf(c10d::OpType::_REDUCE_SCATTER_BASE, "mscclpp:reduce_scatter_tensor", {input},
                                    options.asyncOp, options.timeout);
  addReduceScatter(operation, output, input, options.reduceOp);
  return submit(std::move(operation));
}

Backend::Works Backend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                        const c10d::ReduceScatterOptions& options) {
  Operation operation = operationOf(c10d::OpType::COALESCED, "mscclpp:reduce_scatter_tensor_coalesced", inputs,
                                    options.asyncOp, options.timeout);
  requireTensors(operation, outputs, inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    addReduceScatter(operation, outputs[i], inputs[i], options.reduceOp);
  }
  return submit(std::move(operation));
}

Backend::Works Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                       const c10d::ReduceScatterOptions& options) {
  Operation operation =
      operationOf(c10d::OpType::REDUCE_SCATTER, "mscclpp:reduce_scatter", outputs, options.asyncOp, options.timeout);
  requireTensors(operation, outputs, 1);
  const at::Tensor& output = outputs.front();
  const Tensors& list = onlyList(operation, inputs);
  requireTensors(operation, list, static_cast<std::size_t>(getSize()));
  requireElements(operation, list[static_cast<std::size_t>(getRank())], output, 1);
  // On the caller's stream, before the call.
  Tensors flat;
  std::vector<std::size_t> counts, offsets;
  std::size_t offset = 0;
  for (const at::Tensor& tensor : list) {
    flat.push_back(tensor.reshape({-1}));
    counts.push_back(static_cast<std::size_t>(tensor.numel()));
    offsets.push_back(offset);
    offset += counts.back();
  }
  const at::Tensor input = at::cat(flat);
  operation.numbers = {std::move(counts), std::move(offsets)};
  operation.calls.push_back({.collective = CollectiveType::ReduceScatterV,
                             .input = input.data_ptr(),
                             .output = output.data_ptr(),
                             .type = toDataType(operation, output),
                             .reduction = toReduction(operation, options.reduceOp, output),
                             .counts = operation.numbers[0],
                             .offsets = operation.numbers[1]});
  operation.outputs = outputs;
  operation.kept.push_back(input);
  return submit(std::move(operation));
}

Backend::Works Backend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& outputSplits,
                                      std::vector<std::int64_t>& inputSplits, const c10d::AllToAllOptions& options) {
  Operation operation =
      operationOf(c10d::OpType::ALLTOALL_BASE, "mscclpp:all_to_all_single", {input}, options.asyncOp, options.timeout);
  requireTensor(operation, input);
  requireTensor(operation, output);
  if (input.scalar_type() != output.scalar_type()) throwWrong(operation, "input and output have different types");
  const auto sent = partsOf(operation, input, inputSplits, getSize());
  const auto received = partsOf(operation, output, outputSplits, getSize());
  if (inputSplits.empty() && outputSplits.empty()) {
    requireElements(operation, output, input, 1);
    operation.calls.push_back({.collective = CollectiveType::AllToAll,
                               .input = input.data_ptr(),
                               .output = output.data_ptr(),
                               .count = sent.front().bytes,
                               .type = DataType::UINT8});
  } else {
    for (int r = 0; r < getSize(); ++r) {
      const Part& out = sent[static_cast<std::size_t>(r)];
      const Part& in = received[static_cast<std::size_t>(r)];
      operation.sends.push_back({static_cast<const std::byte*>(input.data_ptr()) + out.offset, out.bytes, r});
      operation.receives.push_back({static_cast<std::byte*>(output.data_ptr()) + in.offset, in.bytes, r});
    }
  }
  operation.outputs.push_back(output);
  operation.kept.push_back(input);
  return submit(std::move(operation));
}

Backend::Works Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  Operation operation =
      operationOf(c10d::OpType::ALLTOALL, "mscclpp:all_to_all", inputs, options.asyncOp, options.timeout);
  requireTensors(operation, outputs, static_cast<std::size_t>(getSize()));
  requireTensors(operation, inputs, static_cast<std::size_t>(getSize()));
  addExchange(operation, outputs, inputs);
  return submit(std::move(operation));
}

void Backend::addMessage(Operation& operation, const at::Tensor& tensor, int peer, int tag, bool isSend) const {
  requireTensor(operation, tensor);
  requireRoot(operation, peer);
  if (tag < 0 || tag >= Ranks::userTags) {
    throwWrong(operation, "tags are 0 to " + std::to_string(Ranks::userTags - 1));
  }
  operation.messages.push_back({tensor.data_ptr(), tensor.nbytes(), peer, tag, isSend});
}

Backend::Works Backend::send(Tensors& tensors, int peer, int tag) {
  Operation operation = operationOf(c10d::OpType::SEND, "mscclpp:send", tensors, true, c10d::kUnsetTimeout);
  requireTensors(operation, tensors, 1);
  addMessage(operation, tensors.front(), peer, tag, true);
  keep(operation, tensors);
  return submit(std::move(operation));
}

Backend::Works Backend::recv(Tensors& tensors, int peer, int tag) {
  Operation operation = operationOf(c10d::OpType::RECV, "mscclpp:recv", tensors, true, c10d::kUnsetTimeout);
  requireTensors(operation, tensors, 1);
  addMessage(operation, tensors.front(), peer, tag, false);
  operation.outputs = tensors;
  return submit(std::move(operation));
}

Backend::Works Backend::recvAnysource(Tensors& /*tensors*/, int /*tag*/) {
  throw Error("mscclpp:recv: a receive names the rank that sends: pass src=", ErrorCode::InvalidUsage);
}

Backend::Works Backend::barrier(const c10d::BarrierOptions& options) {
  c10::Device device(c10::DeviceType::CPU);
  std::shared_ptr<GpuExecutor> gpu;
  {
    const std::lock_guard lock(mutex_);
    gpu = gpu_;
    if (options.device) {
      device = *options.device;
    } else if (!options.device_ids.empty()) {
      device = c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(options.device_ids.front()));
    } else if (bound_device_id_) {
      device = *bound_device_id_;
    } else if (gpu_) {
      device = gpu_->device();
    }
  }
  if (device.is_cpu() && gpu) {
    // PyTorch names the CPU where a group serves both. Work on the GPU has ended on all ranks afterwards, too.
    const c10::impl::VirtualGuardImpl guard(gpu->device().type());
    guard.synchronizeStream(guard.getStream(gpu->device()));
  }
  const at::Tensor tensor = at::zeros({1}, at::TensorOptions().device(device).dtype(at::kInt));
  Operation operation =
      operationOf(c10d::OpType::BARRIER, "mscclpp:barrier", {tensor}, options.asyncOp, options.timeout);
  operation.isHostBarrier = true;
  addAllReduce(operation, tensor, c10d::ReduceOp::SUM);
  return submit(std::move(operation));
}

}  // namespace mscclpp::torch_c10d
