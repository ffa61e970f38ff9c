// The locks behave like std's: exclusion, shared readers, waits with and without a deadline.
#include "base/mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <type_traits>
#include <vector>

namespace plumbline {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kLong{60};  // longer than any test waits
constexpr std::chrono::milliseconds kShort{20};

void InThreads(int n, const std::function<void()>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) threads.emplace_back(body);
  for (std::thread& thread : threads) thread.join();
}

// Returns true if another thread can lock it.
bool Free(Mutex* mutex) {
  std::atomic<bool> taken{false};
  InThreads(1, [&] {
    if (!mutex->TryLock()) return;
    taken = true;
    mutex->Unlock();
  });
  return taken;
}

// They have the size of std's, and can be neither copied nor moved while held.
static_assert(sizeof(Mutex) == sizeof(std::mutex));
static_assert(sizeof(SharedMutex) == sizeof(std::shared_mutex));
static_assert(sizeof(MutexLock) == sizeof(std::unique_lock<std::mutex>));
static_assert(sizeof(CondVar) == sizeof(std::condition_variable));
static_assert(std::is_nothrow_default_constructible_v<Mutex>);
static_assert(!std::is_copy_constructible_v<Mutex> && !std::is_move_constructible_v<Mutex>);
static_assert(!std::is_copy_constructible_v<MutexLock> && !std::is_move_constructible_v<MutexLock>);
static_assert(!std::is_copy_constructible_v<CondVar> && !std::is_move_constructible_v<CondVar>);
constinit Mutex made_before_main;  // constant initialisation, like std::mutex: no order to respect

struct Counted {
  Mutex mutex;
  int count PLUMB_GUARDED_BY(mutex) = 0;
};

TEST(Mutex, OneThreadAtATime) {
  constexpr int kThreads = 4, kTimes = 20000;
  Counted counted;
  InThreads(kThreads, [&] {
    for (int i = 0; i < kTimes; ++i) {
      const MutexLock lock(counted.mutex);
      ++counted.count;
    }
  });
  const MutexLock lock(counted.mutex);
  EXPECT_EQ(counted.count, kThreads * kTimes);
}

TEST(Mutex, TryLockRefusesWhatAnotherThreadHolds) {
  Mutex mutex;
  EXPECT_TRUE(Free(&mutex));
  mutex.Lock();
  EXPECT_FALSE(Free(&mutex));
  mutex.Unlock();
  EXPECT_TRUE(Free(&mutex));
}

TEST(MutexLock, HoldsForItsScopeAloneAndLeavesInBetween) {
  Mutex mutex;
  {
    MutexLock lock(mutex);
    EXPECT_FALSE(Free(&mutex));
    lock.Unlock();
    EXPECT_TRUE(Free(&mutex));
    lock.Lock();
    EXPECT_FALSE(Free(&mutex));
    lock.Unlock();
  }  // an unlocked lock is not released again
  EXPECT_TRUE(Free(&mutex));
  { const MutexLock lock(mutex); }
  EXPECT_TRUE(Free(&mutex));
}

TEST(SharedMutex, ReadersNextToEachOther) {
  SharedMutex mutex;
  std::atomic<int> inside{0};
  // Each continues only when both are inside: if only one were admitted, neither would.
  InThreads(2, [&] {
    const ReaderLock lock(mutex);
    ++inside;
    const auto give_up = Clock::now() + kLong;
    while (inside < 2 && Clock::now() < give_up) std::this_thread::yield();
    EXPECT_EQ(inside, 2);
  });
}

TEST(SharedMutex, AWriterAlone) {
  struct {
    SharedMutex mutex;
    int a PLUMB_GUARDED_BY(mutex) = 0;
    int b PLUMB_GUARDED_BY(mutex) = 0;
  } pair;
  std::atomic<int> torn{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        const WriterLock lock(pair.mutex);
        ++pair.a;
        ++pair.b;
      }
    });
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        const ReaderLock lock(pair.mutex);
        if (pair.a != pair.b) ++torn;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(torn, 0);
  const ReaderLock lock(pair.mutex);
  EXPECT_EQ(pair.a, 10000);
}

struct Flag {
  Mutex mutex;
  CondVar changed;
  bool set PLUMB_GUARDED_BY(mutex) = false;

  void Set() {
    const MutexLock lock(mutex);
    set = true;
    changed.NotifyAll();
  }
};

TEST(CondVar, WaitReturnsWithTheLockWhenItIsDone) {
  Flag flag;
  std::thread other([&] { flag.Set(); });
  MutexLock lock(flag.mutex);
  flag.changed.Wait(lock, [&]() PLUMB_REQUIRES(flag.mutex) { return flag.set; });
  EXPECT_TRUE(flag.set);
  EXPECT_FALSE(Free(&flag.mutex)) << "the wait came back without the lock";
  lock.Unlock();
  other.join();
}

TEST(CondVar, ABareWaitLeavesTheMutexAndIsWoken) {
  Flag flag;
  std::thread other([&] { flag.Set(); });  // it needs the mutex
  MutexLock lock(flag.mutex);
  while (!flag.set) flag.changed.Wait(lock);
  lock.Unlock();
  other.join();
}

TEST(CondVar, ADeadlineThatPassesIsStated) {
  Flag flag;
  MutexLock lock(flag.mutex);
  const auto set = [&]() PLUMB_REQUIRES(flag.mutex) { return flag.set; };
  const auto deadline = Clock::now() + kShort;
  EXPECT_FALSE(flag.changed.WaitUntil(lock, deadline, set));
  EXPECT_GE(Clock::now(), deadline);
  EXPECT_FALSE(flag.changed.WaitUntil(lock, Clock::now() - kShort));
  EXPECT_FALSE(flag.changed.WaitFor(lock, kShort, set));
  EXPECT_FALSE(flag.changed.WaitUntil(lock, std::chrono::system_clock::now() + kShort, set));
}

TEST(CondVar, ADeadlineThatDoesNotPassIsNotWaitedFor) {
  Flag flag;
  std::thread other([&] { flag.Set(); });
  const auto begun = Clock::now();
  {
    MutexLock lock(flag.mutex);
    const auto set = [&]() PLUMB_REQUIRES(flag.mutex) { return flag.set; };
    EXPECT_TRUE(flag.changed.WaitFor(lock, kLong, set));
    EXPECT_TRUE(flag.changed.WaitUntil(lock, begun + kLong, set));
  }
  EXPECT_LT(Clock::now() - begun, kLong);
  other.join();
}

TEST(CondVar, NotifyOneIsEnoughForEachOfSeveral) {
  constexpr int kJobs = 2000, kThreads = 3;
  struct {
    Mutex mutex;
    CondVar changed;
    int jobs PLUMB_GUARDED_BY(mutex) = 0;
    int done PLUMB_GUARDED_BY(mutex) = 0;
    bool over PLUMB_GUARDED_BY(mutex) = false;
  } queue;
  std::vector<std::thread> workers;
  for (int i = 0; i < kThreads; ++i) {
    workers.emplace_back([&] {
      MutexLock lock(queue.mutex);
      for (;;) {
        queue.changed.Wait(
            lock, [&]() PLUMB_REQUIRES(queue.mutex) { return queue.jobs > 0 || queue.over; });
        if (queue.jobs == 0) return;
        --queue.jobs;
        ++queue.done;
      }
    });
  }
  for (int i = 0; i < kJobs; ++i) {
    const MutexLock lock(queue.mutex);
    ++queue.jobs;
    queue.changed.NotifyOne();
  }
  {
    const MutexLock lock(queue.mutex);
    queue.over = true;
    queue.changed.NotifyAll();
  }
  for (std::thread& worker : workers) worker.join();
  const MutexLock lock(queue.mutex);
  EXPECT_EQ(queue.done, kJobs);
}

TEST(Mutex, MayBeMadeBeforeMain) {
  const MutexLock lock(made_before_main);
  SUCCEED();
}

}  // namespace
}  // namespace plumbline
