// Objects that each thread has one of, which destructors of static objects may still use.
#pragma once

#include <utility>

namespace mscclpp::nccl {

/// A program may end communicators in destructors of static objects, which run after the main thread's thread_local
/// objects were destroyed. An object that is asked for after that is made anew, and never freed.
template <class Value>
class ThreadValue {
 public:
  /// The one of the calling thread.
  static Value& get() {
    if (value_ == nullptr) {
      value_ = new Value;
      if (!isThreadEnding_) releaseWithThread();
    }
    return *value_;
  }

 private:
  struct Release {
    Release() noexcept {}
    ~Release() {
      isThreadEnding_ = true;
      delete std::exchange(value_, nullptr);
    }
  };

  static void releaseWithThread() {
    thread_local const Release release;
    static_cast<void>(release);
  }

  // Both are without destructors, and thus valid until the thread's memory is.
  static inline thread_local Value* value_ = nullptr;
  static inline thread_local bool isThreadEnding_ = false;
};

}  // namespace mscclpp::nccl
