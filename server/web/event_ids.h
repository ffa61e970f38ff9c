// The ids of server-sent events, by which a page continues after the last one that it has seen.
//
// A position in the order of all changes counts those of every run. A caller with access to all
// runs gets the position unencrypted, "TABLE.POSITION", and may continue after a restart. A caller
// with access to only some runs gets it encrypted, so that it reveals nothing and only this process
// can read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plumbline::server {

// Thread-safe.
class EventIds {
 public:
  EventIds();  // makes a new key in every process

  static std::string Plain(std::string_view table, uint64_t position);
  // Returns nothing if the id belongs to another table, or is not an id.
  static std::optional<uint64_t> FromPlain(std::string_view id, std::string_view table);

  // Returns a new id at each call, also for the same position.
  std::string Sealed(uint64_t position) const;
  // Returns nothing if this process did not make it.
  std::optional<uint64_t> FromSealed(std::string_view id) const;

 private:
  std::string Pad(std::string_view nonce) const;
  std::string Mark(std::string_view nonce, std::string_view hidden) const;

  std::string key_;
};

}  // namespace plumbline::server
