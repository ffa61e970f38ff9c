// Waits for an action of another thread or process.
#pragma once

#include <chrono>
#include <thread>

namespace plumbline::test {

// Only a broken build makes a test wait this long.
inline constexpr std::chrono::seconds kPatience{60};

// Polls until `condition` holds. False after kPatience.
template <typename Condition>
bool Eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  do {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace plumbline::test
