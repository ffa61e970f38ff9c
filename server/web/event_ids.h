// The ids of server-sent events, by which a page goes on behind the last one that it has seen.
//
// A position in the order of all changes counts those of every run. Whoever may read all runs gets
// it as it is, "TABLE.POSITION", and may go on behind it after a restart; whoever may read some
// gets it sealed, so that it says nothing and only this process can read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plumbline::server {

// Thread-safe.
class EventIds {
 public:
  EventIds();  // another key in every process

  static std::string Plain(std::string_view table, uint64_t position);
  // Nothing: it is of another table, or no id.
  static std::optional<uint64_t> FromPlain(std::string_view id, std::string_view table);

  // Two of one position differ.
  std::string Sealed(uint64_t position) const;
  // Nothing: it was not sealed here.
  std::optional<uint64_t> FromSealed(std::string_view id) const;

 private:
  std::string Pad(std::string_view nonce) const;
  std::string Mark(std::string_view nonce, std::string_view hidden) const;

  std::string key_;
};

}  // namespace plumbline::server
