// The series sets that one stream has declared; checks whether rows fit them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "plumbline/v1/batch.pb.h"
#include "server/journal/entry.h"

namespace plumbline::server {

// Not thread-safe.
class SeriesSets {
 public:
  using Declared = google::protobuf::RepeatedPtrField<v1::SeriesSet>;

  // Takes sets, and adds those that were not known to `fresh`. Returns InvalidArgument, and takes
  // nothing, if a set differs from an earlier one of its id or if there are too many.
  absl::Status Add(const Declared& sets, size_t max_sets, std::vector<SetRecord>* fresh);
  bool Has(uint64_t set) const { return sets_.contains(set); }
  static constexpr uint64_t kRecord = 160;  // bytes that a set takes in addition to its names
  // Restores a set from the journal.
  void Restore(std::string_view record);

  // Checks that the rows of `batch` fit the sets declared so far or in `batch`. The rows must be
  // well-formed.
  absl::Status CheckRows(const v1::Batch& batch) const;

  size_t size() const { return sets_.size(); }

 private:
  struct Known {
    int columns = 0;
    size_t hash = 0;  // of its bytes
  };
  // Seeded hashes, because senders choose the numbers.
  std::unordered_map<uint64_t, Known, absl::Hash<uint64_t>> sets_;
};

}  // namespace plumbline::server
