// How exceptions of the library leave an operator as those of the Python package.
#pragma once

#include <exception>
#include <stdexcept>

#include "python/src/python_error.hpp"

// PyTorch calls operators from Python by pybind11, which lets an exception of this type set the Python error itself. It
// knows the type by its name alone. Callers that do not know it, such as compiled C++ programs, get a runtime_error
// with the same sentence.
namespace pybind11 {

class __attribute__((visibility("default"))) builtin_exception : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  virtual void set_error() const = 0;
};

}  // namespace pybind11

namespace mscclpp::python {

/// An exception of the library or of Python, on its way through PyTorch.
class PythonError : public pybind11::builtin_exception {
 public:
  PythonError(const char* what, std::exception_ptr exception)
      : pybind11::builtin_exception(what), exception_(std::move(exception)) {}
  void set_error() const override { setPythonError(exception_); }

 private:
  std::exception_ptr exception_;
};

/// Calls f, the body of an operator; what it throws becomes a PythonError.
template <class F>
auto withPythonErrors(const F& f) {
  try {
    return f();
  } catch (const std::exception& error) {
    throw PythonError(error.what(), std::current_exception());
  }
}

}  // namespace mscclpp::python
