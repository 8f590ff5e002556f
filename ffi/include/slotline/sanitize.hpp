// Annotations about lifetimes and ordering for compilers and sanitizers.
//
// slotline orders the writes of callbacks before the reads of the loop, and the reads of the loop
// before the memory is written again. ThreadSanitizer does not see that, because the library is not
// compiled for it. The functions here inform it; they do nothing unless the program is compiled
// with -fsanitize=thread. Each function names the memory that it is about, so that nothing else is
// ordered: two callbacks that write to one object without a lock are still reported.
#ifndef SLOTLINE_SANITIZE_HPP
#define SLOTLINE_SANITIZE_HPP

#if defined(__SANITIZE_THREAD__)
#define SLOTLINE_SANITIZE_THREAD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLOTLINE_SANITIZE_THREAD 1
#endif
#endif

/// For a function that returns a view of its object: clang then warns if the view outlives the
/// object.
#define SLOTLINE_LIFETIMEBOUND
#ifdef __has_cpp_attribute
#if __has_cpp_attribute(clang::lifetimebound)
#undef SLOTLINE_LIFETIMEBOUND
#define SLOTLINE_LIFETIMEBOUND [[clang::lifetimebound]]
#endif
#endif

#ifdef SLOTLINE_SANITIZE_THREAD
extern "C" void __tsan_acquire(void* at);
extern "C" void __tsan_release(void* at);
#endif

namespace slotline {
namespace detail {

/// Declares that everything this thread has done so far happens before a later `taken_over` of the
/// same memory.
inline void handed_over([[maybe_unused]] const void* at) noexcept {
#ifdef SLOTLINE_SANITIZE_THREAD
  __tsan_release(const_cast<void*>(at));
#endif
}

/// Declares that everything before earlier calls of `handed_over` with the same memory happens
/// before what this thread does next.
inline void taken_over([[maybe_unused]] const void* at) noexcept {
#ifdef SLOTLINE_SANITIZE_THREAD
  __tsan_acquire(const_cast<void*>(at));
#endif
}

/// A call that uses a user's object exclusively, after other calls that may have run on other
/// threads.
class turn {
 public:
  explicit turn(const void* object) noexcept : object_(object) { taken_over(object); }
  turn(const turn&) = delete;
  turn& operator=(const turn&) = delete;
  ~turn() { handed_over(object_); }

 private:
  const void* object_;
};

/// A call that uses a user's object concurrently with others. Only the object's destruction is
/// ordered after it.
class use {
 public:
  explicit use(const void* object) noexcept : object_(object) {}
  use(const use&) = delete;
  use& operator=(const use&) = delete;
  ~use() { handed_over(object_); }

 private:
  const void* object_;
};

}  // namespace detail
}  // namespace slotline

#endif
