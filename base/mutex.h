// Locks that the compiler checks. Mark each member that a mutex guards; clang's -Wthread-safety
// (tools/lint) refuses code that uses it without the lock:
//
//   class Queue {
//     ...
//     void Trim() PLUMB_REQUIRES(mutex_);  // called with the lock
//
//     Mutex mutex_;
//     CondVar changed_;
//     std::deque<Job> jobs_ PLUMB_GUARDED_BY(mutex_);
//   };
//
//   MutexLock lock(mutex_);
//   changed_.Wait(lock, [this]() PLUMB_REQUIRES(mutex_) { return !jobs_.empty(); });
//
// They are std::mutex, std::shared_mutex and std::condition_variable under other names, because the
// standard library's types have no annotations. They cost nothing at run time and need only the
// standard library. Other compilers ignore the annotations.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <utility>

#if defined(__clang__)
#define PLUMB_THREAD_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define PLUMB_THREAD_ATTRIBUTE(attribute)
#endif

// Marks a member: it, or the object that it points to, may be used only while the mutex is held.
#define PLUMB_GUARDED_BY(mutex) PLUMB_THREAD_ATTRIBUTE(guarded_by(mutex))
#define PLUMB_PT_GUARDED_BY(mutex) PLUMB_THREAD_ATTRIBUTE(pt_guarded_by(mutex))
// Marks the order of two mutexes: which one must be taken first if both are taken.
#define PLUMB_ACQUIRED_AFTER(...) PLUMB_THREAD_ATTRIBUTE(acquired_after(__VA_ARGS__))
#define PLUMB_ACQUIRED_BEFORE(...) PLUMB_THREAD_ATTRIBUTE(acquired_before(__VA_ARGS__))
// Marks a function: its caller holds the mutex, or must not hold it.
#define PLUMB_REQUIRES(...) PLUMB_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define PLUMB_REQUIRES_SHARED(...) PLUMB_THREAD_ATTRIBUTE(requires_shared_capability(__VA_ARGS__))
#define PLUMB_EXCLUDES(...) PLUMB_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
// Marks a function that takes or releases the mutex and returns with that state.
#define PLUMB_ACQUIRE(...) PLUMB_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define PLUMB_ACQUIRE_SHARED(...) PLUMB_THREAD_ATTRIBUTE(acquire_shared_capability(__VA_ARGS__))
#define PLUMB_TRY_ACQUIRE(...) PLUMB_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define PLUMB_RELEASE(...) PLUMB_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define PLUMB_RELEASE_SHARED(...) PLUMB_THREAD_ATTRIBUTE(release_shared_capability(__VA_ARGS__))
#define PLUMB_RELEASE_GENERIC(...) PLUMB_THREAD_ATTRIBUTE(release_generic_capability(__VA_ARGS__))
#define PLUMB_RETURN_CAPABILITY(mutex) PLUMB_THREAD_ATTRIBUTE(lock_returned(mutex))
// Marks a class that is a mutex, or that holds one during its lifetime.
#define PLUMB_CAPABILITY(name) PLUMB_THREAD_ATTRIBUTE(capability(name))
#define PLUMB_SCOPED_CAPABILITY PLUMB_THREAD_ATTRIBUTE(scoped_lockable)
// Marks a function whose locking the analysis cannot follow; a comment states why it is correct.
#define PLUMB_NO_THREAD_SAFETY_ANALYSIS PLUMB_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace plumbline {

// The bodies of the following functions are not analysed, because clang does not know the standard
// library's mutexes.
class PLUMB_CAPABILITY("mutex") Mutex {
 public:
  constexpr Mutex() noexcept = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() PLUMB_ACQUIRE() PLUMB_NO_THREAD_SAFETY_ANALYSIS { mutex_.lock(); }
  bool TryLock() PLUMB_TRY_ACQUIRE(true) PLUMB_NO_THREAD_SAFETY_ANALYSIS {
    return mutex_.try_lock();
  }
  void Unlock() PLUMB_RELEASE() PLUMB_NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Several readers at once, or one writer.
class PLUMB_CAPABILITY("shared mutex") SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void Lock() PLUMB_ACQUIRE() PLUMB_NO_THREAD_SAFETY_ANALYSIS { mutex_.lock(); }
  void Unlock() PLUMB_RELEASE() PLUMB_NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock(); }
  void ReaderLock() PLUMB_ACQUIRE_SHARED() PLUMB_NO_THREAD_SAFETY_ANALYSIS { mutex_.lock_shared(); }
  void ReaderUnlock() PLUMB_RELEASE_SHARED() PLUMB_NO_THREAD_SAFETY_ANALYSIS {
    mutex_.unlock_shared();
  }

 private:
  std::shared_mutex mutex_;
};

// Holds the mutex for its scope. It may be unlocked and locked again in between, unless it is
// `const`.
class PLUMB_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) PLUMB_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() PLUMB_RELEASE() = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() PLUMB_RELEASE() PLUMB_NO_THREAD_SAFETY_ANALYSIS { lock_.unlock(); }
  void Lock() PLUMB_ACQUIRE() PLUMB_NO_THREAD_SAFETY_ANALYSIS { lock_.lock(); }

 private:
  friend class CondVar;
  std::unique_lock<std::mutex> lock_;
};

class PLUMB_SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) PLUMB_ACQUIRE_SHARED(mutex) : mutex_(mutex) {
    mutex.ReaderLock();
  }
  ~ReaderLock() PLUMB_RELEASE_GENERIC() { mutex_.ReaderUnlock(); }
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  SharedMutex& mutex_;
};

class PLUMB_SCOPED_CAPABILITY WriterLock {
 public:
  explicit WriterLock(SharedMutex& mutex) PLUMB_ACQUIRE(mutex) : mutex_(mutex) { mutex.Lock(); }
  ~WriterLock() PLUMB_RELEASE() { mutex_.Unlock(); }
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  SharedMutex& mutex_;
};

// Waiting releases the lock's mutex. The mutex is held again when a wait returns and while `done`
// is evaluated. Annotate `done`: [this]() PLUMB_REQUIRES(mutex_) { return stopped_; }
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void NotifyOne() noexcept { changed_.notify_one(); }
  void NotifyAll() noexcept { changed_.notify_all(); }

  // Waits for a notification; may return without one.
  void Wait(MutexLock& lock) { changed_.wait(lock.lock_); }
  // Waits until done() is true.
  template <typename Done>
  void Wait(MutexLock& lock, Done done) {
    changed_.wait(lock.lock_, std::move(done));
  }

  // Waits for a notification; may return true without one. Returns false if the deadline has
  // passed.
  template <typename Clock, typename Duration>
  bool WaitUntil(MutexLock& lock, const std::chrono::time_point<Clock, Duration>& deadline) {
    return changed_.wait_until(lock.lock_, deadline) == std::cv_status::no_timeout;
  }
  // Waits until done() is true or the deadline has passed; returns done().
  template <typename Clock, typename Duration, typename Done>
  bool WaitUntil(MutexLock& lock, const std::chrono::time_point<Clock, Duration>& deadline,
                 Done done) {
    return changed_.wait_until(lock.lock_, deadline, std::move(done));
  }
  template <typename Rep, typename Period, typename Done>
  bool WaitFor(MutexLock& lock, const std::chrono::duration<Rep, Period>& time, Done done) {
    return changed_.wait_for(lock.lock_, time, std::move(done));
  }

 private:
  std::condition_variable changed_;
};

}  // namespace plumbline
