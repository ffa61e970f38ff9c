#include "agent/core/threads.h"

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace plumbline::agent {

struct SignalsBlocked::Saved {
  sigset_t mask;
};

SignalsBlocked::SignalsBlocked() : saved_(std::make_unique<Saved>()) {
  sigset_t all;
  sigfillset(&all);
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP}) sigdelset(&all, signal);
  pthread_sigmask(SIG_BLOCK, &all, &saved_->mask);
}

SignalsBlocked::~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &saved_->mask, nullptr); }

bool GuestThread::Start(const std::string& name, std::function<void()> body) {
  const SignalsBlocked blocked;
  auto end = std::make_shared<End>();
  try {
    std::thread thread([end, body = std::move(body)]() mutable {
      body();
      body = nullptr;  // what the thread owned is gone before it is said to have ended
      const std::lock_guard<std::mutex> lock(end->mutex);
      end->ended = true;
      end->changed.notify_all();
    });
    pthread_setname_np(thread.native_handle(), name.substr(0, 15).c_str());
    thread.detach();
  } catch (const std::system_error&) {
    return false;
  }
  end_ = std::move(end);
  return true;
}

bool GuestThread::WaitEnded(Clock::time_point deadline) const {
  if (end_ == nullptr) return true;
  std::unique_lock<std::mutex> lock(end_->mutex);
  return end_->changed.wait_until(lock, deadline, [&] { return end_->ended; });
}

}  // namespace plumbline::agent
