// A scope without the interpreter's lock.
#pragma once

#include <Python.h>

namespace mscclpp::torch_c10d {

/// Its scope does not hold the interpreter's lock: threads that are waited for may need it. The caller may be a thread
/// that does not have it.
class WithoutInterpreterLock {
 public:
  WithoutInterpreterLock()
      : state_(Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr) {}
  ~WithoutInterpreterLock() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  WithoutInterpreterLock(const WithoutInterpreterLock&) = delete;
  WithoutInterpreterLock& operator=(const WithoutInterpreterLock&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace mscclpp::torch_c10d
