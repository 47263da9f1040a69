// The exceptions of the library for extension modules that use its copy in this one.
#pragma once

#include <exception>

namespace mscclpp::python {

/// Makes an exception the current one of Python, in the package's family. The caller holds the interpreter's lock.
[[gnu::visibility("default")]] void setPythonError(const std::exception_ptr& exception);

}  // namespace mscclpp::python
