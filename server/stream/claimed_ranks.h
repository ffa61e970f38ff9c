// The ranks that one stream has claimed. Looked up for each source of each batch, so the cost does
// not grow with their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/hash/hash.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::server {

// Not thread-safe.
class ClaimedRanks {
 public:
  // Returns true if `source` needs no claim: its rank is known, with this attempt or a later one.
  bool Has(const v1::Source& source);
  // Adds a claim. Returns the earlier attempt of the rank that it replaces, if there is one.
  std::optional<v1::Source> Add(const v1::Source& source);

  const std::vector<v1::Source>& list() const { return list_; }
  // Returns a shared copy of the list; it is made on demand after a change.
  std::shared_ptr<const std::vector<v1::Source>> Shared();
  size_t size() const { return list_.size(); }
  const std::set<std::string>& runs() const { return runs_; }

 private:
  const v1::Source* Find(const v1::Source& source);

  std::vector<v1::Source> list_;
  std::shared_ptr<const std::vector<v1::Source>> shared_;  // null: the list has changed
  // index in the list, by rank
  std::unordered_map<std::string, size_t, absl::Hash<std::string>> places_;
  std::set<std::string> runs_;
  size_t next_ = 0;  // index of the next source if sources come in the same order as before
};

}  // namespace plumbline::server
