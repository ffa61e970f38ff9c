// The permissions of a caller: scopes over runs, from every matching [[access]] entry.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::server {

enum class Scope : uint8_t {
  kRead = 1,   // queries and watches
  kWrite = 2,  // evidence
  kAdmin = 4,  // acknowledge, silence, reopen
};

const char* ScopeName(Scope scope);

struct GrantPart {
  std::string entry;  // name of the [[access]] entry
  uint8_t scopes = 0;
  std::vector<std::string> runs;  // globs

  bool Has(Scope scope) const { return (scopes & static_cast<uint8_t>(scope)) != 0; }
  bool operator==(const GrantPart&) const = default;
};

class Grant {
 public:
  Grant() = default;
  explicit Grant(std::vector<GrantPart> parts) : parts_(std::move(parts)) {}
  // For a server without [[access]].
  static Grant Everything() { return Grant({{"", 7, {"*"}}}); }

  bool empty() const { return parts_.empty(); }
  bool Somewhere(Scope scope) const;   // true over at least one run
  bool Everywhere(Scope scope) const;  // true over every run
  bool Over(Scope scope, std::string_view run) const;
  std::string Names() const;  // of the entries, "ops, agents"

  bool operator==(const Grant&) const = default;

 private:
  std::vector<GrantPart> parts_;
};

}  // namespace plumbline::server
