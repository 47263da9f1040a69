// Memory order and scope, spelled in every call that touches memory which another thread, GPU or CPU writes.
#pragma once

namespace mscclpp::arch {

/// C++ memory orders, and Volatile: not reordered by the compiler with other volatile accesses and performed once; no order between threads.
enum class Order { Volatile, Relaxed, Acquire, Release, AcqRel };

/// Who is to see it: the threads of this GPU, or every GPU and CPU of the system. Host twins treat both alike.
enum class Scope { Device, System };

}  // namespace mscclpp::arch
