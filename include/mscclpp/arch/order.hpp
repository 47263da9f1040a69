// Memory order and scope, which every access to memory shared with another thread, GPU or CPU states.
#pragma once

namespace mscclpp::arch {

/// The C++ memory orders, and Volatile: performed exactly once and not reordered by the compiler with other volatile
/// accesses, without any order between threads.
enum class Order { Volatile, Relaxed, Acquire, Release, AcqRel };

/// The observers that the order holds for: the threads of this block (relaxed loads and stores only), of this GPU, or
/// of every GPU and CPU of the system. CPU implementations treat them alike.
enum class Scope { Block, Device, System };

}  // namespace mscclpp::arch
