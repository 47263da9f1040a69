#include <cstring>
#include <exception>

#include "module.hpp"
#include "python_error.hpp"

namespace mscclpp::python {

namespace {

// The classes are written in Python, where a class can have several bases: mscclpp/errors.py.
void raise(const char* className, const BaseError& error, const nb::object& code) {
  const nb::object type = nb::module_::import_("mscclpp.errors").attr(className);
  // A message may quote bytes of a file or a peer that are no UTF-8.
  const char* const what = error.what();
  const nb::object message =
      nb::steal(PyUnicode_DecodeUTF8(what, static_cast<Py_ssize_t>(std::strlen(what)), "replace"));
  if (!message.is_valid()) throw nb::python_error();
  PyErr_SetObject(type.ptr(), type(message, code).ptr());
}

const char* classOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::RemoteError:
      return "RemoteError";
    case ErrorCode::InvalidUsage:
      return "InvalidUsage";
    case ErrorCode::Timeout:
      return "Timeout";
    case ErrorCode::Aborted:
      return "Aborted";
    default:
      return "Error";
  }
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    raise(classOf(error.getErrorCode()), error, nb::cast(error.getErrorCode()));
  } catch (const SysError& error) {
    raise("SysError", error, nb::int_(error.getErrorCode()));
  } catch (const CudaError& error) {
    raise("CudaError", error, nb::int_(error.getErrorCode()));
  } catch (const CuError& error) {
    raise("CuError", error, nb::int_(error.getErrorCode()));
  } catch (const IbError& error) {
    raise("IbError", error, nb::int_(error.getErrorCode()));
  } catch (const BaseError& error) {
    raise("Error", error, nb::int_(error.getErrorCode()));
  }
}

}  // namespace

void setPythonError(const std::exception_ptr& exception) {
  try {
    translate(exception, nullptr);
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

void bindErrors(nb::module_& module) {
  nb::enum_<ErrorCode>(module, "ErrorCode", "What kind of failure an Error of the library reports.")
      .value("SystemError", ErrorCode::SystemError, "A system call failed.")
      .value("InternalError", ErrorCode::InternalError, "An internal error of the library: please report it.")
      .value("RemoteError", ErrorCode::RemoteError, "Another rank failed, exited or sent invalid data.")
      .value("InvalidUsage", ErrorCode::InvalidUsage, "The caller's argument, order of calls or environment is wrong.")
      .value("Timeout", ErrorCode::Timeout, "A blocking call timed out.")
      .value("Aborted", ErrorCode::Aborted, "The object was shut down while the call was blocked.")
      .value("ExecutorError", ErrorCode::ExecutorError, "An execution plan could not be run.");
  nb::register_exception_translator(translate);
}

}  // namespace mscclpp::python
