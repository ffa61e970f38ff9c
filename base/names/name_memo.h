// Caches the meaning of names that are looked up again and again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace plumbline {

// Caches a pure function of a name that costs hundreds of nanoseconds: a recent name costs a few
// nanoseconds. 256 names; a name that maps to another's place replaces it. Not thread-safe: use one
// per thread.
template <typename Value>
class NameMemo {
 public:
  template <typename Make>
  Value Of(std::string_view name, const Make& make) {
    if (name.size() > kLongest) return make(name);
    Entry& entry = entries_[PlaceOf(name)];
    if (!entry.set || entry.name != name) entry = {std::string(name), make(name), true};
    return entry.value;
  }

 private:
  static constexpr size_t kEntries = 256, kLongest = 128;
  struct Entry {
    std::string name;
    Value value{};
    bool set = false;
  };

  // Returns the place of a name. Hashes its first and last bytes, because the names of one run
  // differ there.
  static size_t PlaceOf(std::string_view name) {
    if (name.empty()) return 0;
    uint64_t begin = 0, end = 0;
    const size_t bytes = name.size() < 8 ? name.size() : 8;
    std::memcpy(&begin, name.data(), bytes);
    std::memcpy(&end, name.data() + (name.size() - bytes), bytes);
    const uint64_t mixed = (begin ^ (end * 0x9e3779b97f4a7c15) ^ name.size()) * 0xbf58476d1ce4e5b9;
    return static_cast<size_t>(mixed >> 56);
  }

  std::array<Entry, kEntries> entries_;
};

}  // namespace plumbline
