// The extension module _c10d_<version of PyTorch>: the backend for Python.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <exception>

#include "backend.hpp"
#include "mscclpp/host/base/error.hpp"
#include "python/src/python_error.hpp"
#include "symmetric_memory.hpp"

namespace py = pybind11;
using mscclpp::torch_c10d::Backend;

PYBIND11_MODULE(MSCCLPP_C10D_MODULE, module) {
  module.doc() = "The backend mscclpp of torch.distributed, for one version of PyTorch; mscclpp.c10d registers it.";
  py::module_::import("torch.distributed");
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const mscclpp::BaseError&) {
      mscclpp::python::setPythonError(std::current_exception());
    }
  });
  mscclpp::torch_c10d::registerSymmetricMemory();
  module.def("shutdown_all", &Backend::shutdownAll, py::call_guard<py::gil_scoped_release>(),
             "Leaves all process groups, in order: called before the interpreter ends.");
  py::class_<Backend::Options, c10d::Backend::Options, c10::intrusive_ptr<Backend::Options>>(
      module, "Options", "pg_options of a process group: its timeout.")
      .def(py::init([](std::chrono::milliseconds timeout) { return c10::make_intrusive<Backend::Options>(timeout); }),
           py::arg("timeout") = kBackendDefaultTimeout)
      .def("__deepcopy__",
           [](const Backend::Options& self, const py::dict&) { return c10::make_intrusive<Backend::Options>(self); });
  py::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(
      module, "Backend", "One rank of a process group. All ranks make it together; mscclpp.c10d.create does.")
      .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                       c10::intrusive_ptr<Backend::Options> options) {
             const py::gil_scoped_release release;
             return c10::make_intrusive<Backend>(*store, rank, size, std::move(options));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"))
      .def_property_readonly("options", &Backend::ownOptions)
      .def(
          "perform_nocolor_split", [](Backend&, const at::Device&) {}, py::arg("device"),
          "PyTorch calls it on ranks outside of a new group that is split off: only members take part, so it does "
          "nothing.")
      .def("get_error", &Backend::getError, py::call_guard<py::gil_scoped_release>(),
           "The state of the calls so far, an ErrorType of torch.distributed: SUCCESS, TIMEOUT, REMOTE_ERROR, "
           "COMM_ERROR.");
}
