// Enumerations, devices and sets of transports.
#include <nanobind/operators.h>
#include <nanobind/stl/string.h>

#include "module.hpp"
#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/host/base/device.hpp"
#include "mscclpp/host/base/transport.hpp"

namespace mscclpp::python {

namespace {

void bindDevices(nb::module_& module) {
  nb::enum_<DeviceType>(module, "DeviceType", "Where buffers are, and who works on them.")
      .value("Unknown", DeviceType::Unknown)
      .value("CPU", DeviceType::CPU, "Host memory; ranks are processes without a GPU.")
      .value("GPU", DeviceType::GPU, "Memory of a CUDA device.");
  nb::class_<Device>(module, "Device", "The CPU, or a GPU by its CUDA number; id -1 is the current GPU.")
      .def(nb::init<DeviceType, int>(), "type"_a, "id"_a = -1)
      .def_rw("type", &Device::type)
      .def_rw("id", &Device::id)
      .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"))
      .def("__repr__", [](const Device& device) { return "Device(" + nameOf(device) + ")"; });
  nb::implicitly_convertible<DeviceType, Device>();
}

void bindTransports(nb::module_& module) {
  nb::enum_<Transport>(module, "Transport", "A method of accessing another rank's memory.")
      .value("Unknown", Transport::Unknown)
      .value("CudaIpc", Transport::CudaIpc, "GPU memory of the same host, mapped.")
      .value("IB0", Transport::IB0, "The first verbs device; IB1 is the second, and so on.")
      .value("IB1", Transport::IB1)
      .value("IB2", Transport::IB2)
      .value("IB3", Transport::IB3)
      .value("IB4", Transport::IB4)
      .value("IB5", Transport::IB5)
      .value("IB6", Transport::IB6)
      .value("IB7", Transport::IB7)
      .value("Ethernet", Transport::Ethernet, "TCP.")
      .value("SharedMemory", Transport::SharedMemory, "Host memory of the same host, mapped; of CPU ranks.");
  nb::class_<TransportFlags>(module, "TransportFlags", "A set of transports.")
      .def(nb::init<>())
      .def(nb::init<Transport>(), "transport"_a)
      .def("has", &TransportFlags::has, "transport"_a)
      .def("none", &TransportFlags::none)
      .def("any", &TransportFlags::any)
      .def("all", &TransportFlags::all)
      .def("count", &TransportFlags::count)
      .def(nb::self | nb::self)
      .def(nb::self & nb::self)
      .def(nb::self ^ nb::self)
      .def(~nb::self)
      .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"))
      .def("__repr__", [](TransportFlags flags) { return "TransportFlags(" + nameOf(flags) + ")"; });
  nb::implicitly_convertible<Transport, TransportFlags>();
  module.attr("NoTransports") = NoTransports;
  module.attr("AllIBTransports") = AllIBTransports;
  module.attr("AllTransports") = AllTransports;
}

}  // namespace

void bindTypes(nb::module_& module) {
  bindDevices(module);
  bindTransports(module);
  nb::enum_<DataType>(module, "DataType", "Element types.")
      .value("int8", DataType::INT8)
      .value("uint8", DataType::UINT8)
      .value("int16", DataType::INT16)
      .value("uint16", DataType::UINT16)
      .value("int32", DataType::INT32)
      .value("uint32", DataType::UINT32)
      .value("int64", DataType::INT64)
      .value("uint64", DataType::UINT64)
      .value("float16", DataType::FLOAT16)
      .value("bfloat16", DataType::BFLOAT16)
      .value("float32", DataType::FLOAT32)
      .value("float64", DataType::FLOAT64)
      .value("float8_e4m3fn", DataType::FLOAT8_E4M3FN)
      .value("float8_e5m2", DataType::FLOAT8_E5M2)
      .value("float8_e4m3fnuz", DataType::FLOAT8_E4M3FNUZ, "Not supported; listed so that errors can name it.")
      .value("float8_e5m2fnuz", DataType::FLOAT8_E5M2FNUZ, "Not supported; listed so that errors can name it.")
      .value("float8_e4m3b15", DataType::FLOAT8_E4M3B15, "Not supported; listed so that errors can name it.")
      .value("auto", DataType::AUTO, "As accum_dtype: the algorithm chooses.");
  module.def(
      "size_of", [](DataType type) { return sizeOf(type); }, "dtype"_a,
      "Bytes of one element; 0 for a type that is not supported.");
  nb::enum_<ReduceOp>(module, "ReduceOp", "Operators of collectives that reduce.")
      .value("SUM", ReduceOp::SUM)
      .value("PROD", ReduceOp::PROD)
      .value("MAX", ReduceOp::MAX)
      .value("MIN", ReduceOp::MIN)
      .value("AVG", ReduceOp::AVG)
      .value("NOP", ReduceOp::NOP, "Of collectives that do not reduce.");
}

}  // namespace mscclpp::python
