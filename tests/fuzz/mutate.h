// Applies random damage to bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>

namespace plumbline::audit {

// Applies a few mutations: flips a bit, sets a byte to one of `odd` (bytes that often break
// parsers), cuts, inserts, copies a piece.
inline std::string MutateWith(std::string bytes, std::string_view odd, std::mt19937& random) {
  const auto at = [&] { return random() % bytes.size(); };
  for (uint32_t i = 0, count = 1 + random() % 4; i < count && !bytes.empty(); ++i) {
    switch (random() % 5) {
      case 0:
        bytes[at()] ^= static_cast<char>(1u << (random() % 8));
        break;
      case 1:
        bytes[at()] = odd[random() % odd.size()];
        break;
      case 2:
        bytes.resize(at());
        break;
      case 3:
        bytes.insert(at(), 1 + random() % 9, odd[random() % odd.size()]);
        break;
      default:
        bytes.replace(at(), 1 + random() % 16, bytes.substr(at(), 1 + random() % 16));
    }
  }
  return bytes;
}

// Returns true if the next round is due: `least` rounds in every test run; with PLUMB_LONG at least
// these, and as many as fit into 20 s; with PLUMB_LONG=N above 1, into N s.
class FuzzRounds {
 public:
  explicit FuzzRounds(int least)
      : least_(least),
        end_(std::chrono::steady_clock::now() +
             std::chrono::seconds(Seconds(std::getenv("PLUMB_LONG")))) {}
  bool Due(int round) const { return round < least_ || std::chrono::steady_clock::now() < end_; }

 private:
  static int Seconds(const char* stated) {
    if (stated == nullptr || *stated == '\0') return 0;
    const int seconds = std::atoi(stated);
    return seconds > 1 ? seconds : 20;
  }

  int least_;
  std::chrono::steady_clock::time_point end_;
};

}  // namespace plumbline::audit
