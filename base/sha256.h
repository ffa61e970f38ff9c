// SHA-256 (FIPS 180-4), to identify data from any sender.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace plumbline {

// Not thread-safe. Call Add any number of times, then Digest once.
class Sha256 {
 public:
  static constexpr size_t kBytes = 32;

  void Add(std::string_view data);
  std::string Digest();  // kBytes bytes

 private:
  void Block(const uint8_t* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending_{};
  uint64_t bytes_ = 0;
};

std::string Sha256Of(std::string_view data);

// Returns lower-case hexadecimal digits.
std::string HexText(std::string_view bytes);

}  // namespace plumbline
