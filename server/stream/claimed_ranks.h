// The ranks that one stream has spoken for. Asked for each source of each batch, so a question
// costs the same however many there are.
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
  // Whether nothing is to be claimed for `source`: its rank is known, of this attempt or a later
  // one.
  bool Has(const v1::Source& source);
  // It is claimed from now on. The earlier attempt of the rank, whose place it takes.
  std::optional<v1::Source> Add(const v1::Source& source);

  const std::vector<v1::Source>& list() const { return list_; }
  // The same, for others to keep; made when it is asked for and was changed.
  std::shared_ptr<const std::vector<v1::Source>> Shared();
  size_t size() const { return list_.size(); }
  const std::set<std::string>& runs() const { return runs_; }

 private:
  const v1::Source* Find(const v1::Source& source);

  std::vector<v1::Source> list_;
  std::shared_ptr<const std::vector<v1::Source>> shared_;                    // null: it was changed
  std::unordered_map<std::string, size_t, absl::Hash<std::string>> places_;  // in the list, by rank
  std::set<std::string> runs_;
  size_t next_ =
      0;  // where the next source is when they come in the order in which they came first
};

}  // namespace plumbline::server
