// Bytes damaged by chance.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>

namespace plumbline::audit {

// A few of: flip a bit, set a byte to one of `odd`, on which parsers stumble, cut, insert, copy a
// piece.
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

// Is the next round due? So many in every test run; with PLUMB_LONG as many as fit into 20 s, these
// at least.
class FuzzRounds {
 public:
  explicit FuzzRounds(int least)
      : least_(least),
        end_(std::chrono::steady_clock::now() +
             std::chrono::seconds(std::getenv("PLUMB_LONG") != nullptr ? 20 : 0)) {}
  bool Due(int round) const { return round < least_ || std::chrono::steady_clock::now() < end_; }

 private:
  int least_;
  std::chrono::steady_clock::time_point end_;
};

}  // namespace plumbline::audit
