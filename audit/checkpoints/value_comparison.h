// Compares two trees of pickled values.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "audit/checkpoints/equality.h"
#include "audit/checkpoints/names_map.h"
#include "audit/checkpoints/pieces.h"
#include "audit/checkpoints/value_entries.h"

namespace plumbline::audit {

// Adds the results to an Equality. Visits each pair of values once, even if the pickles refer to it
// often, so that the work is linear in their bytes. Not thread-safe.
class ValueComparison {
 public:
  // `reported`: last parts of the names of values that were already compared.
  ValueComparison(const NamesMap& names, const std::set<std::string>& reported, PieceReader* reader,
                  LeftOut* left_out, Equality* out)
      : names_(names),
        reported_(reported),
        reader_(*reader),
        left_out_(*left_out),
        out_(*out),
        counter_(names, left_out),
        lost_(names, left_out) {}

  absl::Status Compare(const std::vector<ValueEntry>& a, const std::vector<ValueEntry>& b);

  // Whole parts that the other side lacks, and in conversions everything that it lacks.
  Alone only_a, only_b;

 private:
  void Emit(const std::string& place, std::string text);
  void ReportBoth(const Value& a, const Value& b, const std::string& place);

  void CompareEntries(const std::vector<ValueEntry>& a, const std::vector<ValueEntry>& b,
                      const std::string& place);
  void ReportAlone(const ValueEntry& entry, const std::string& name, bool adjacent, bool of_a);
  bool SkipMethods(const Value& a, const Value& b, const std::string& place);
  void CompareOne(const Value& a, const Value& b, const std::string& place);
  void CompareScalars(const Value& a, const Value& b, const std::string& place);
  void CompareStrings(const Value& a, const Value& b, const std::string& place);
  void CompareArrays(const Value& a, const Value& b, const std::string& place);
  void CompareLists(const Value& a, const Value& b, const std::string& place);
  void CompareDicts(const Value& a, const Value& b, const std::string& place);
  bool CompareAllRuns(const Value& a, const Value& b);
  bool CompareRuns(const Value& a, const Value& b, const std::string& place);
  void LeaveOpen(const std::string& place);
  void CompareSets(const Value& a, const Value& b, const std::string& place);
  void CompareCalls(const Value& a, const Value& b, const std::string& place);
  void CompareParts(const Value& a, const Value& b, const std::string& place);
  void CompareTensors(const Value& a, const Value& b, const std::string& place);
  void CompareStorages(const Value& a, const Value& b, const std::string& place);
  void CompareStored(const std::optional<StoredTensor>& of_a,
                     const std::optional<StoredTensor>& of_b, const std::string& wrong,
                     const Value& a, const Value& b, const std::string& place);

  const NamesMap& names_;
  const std::set<std::string>& reported_;
  PieceReader& reader_;
  LeftOut& left_out_;
  Equality& out_;
  ValueCounter counter_;  // counts values that are set aside
  ValueCounter lost_;     // counts single values that are missing
  absl::Status status_;
  size_t visits_ = 0;
  Alone open_;            // values that were not kept, on either side, by place
  uint64_t over_ = 0;     // number of differences beyond the reporting limit
  uint64_t tensors_ = 0;  // tensors that were read
  absl::flat_hash_set<std::tuple<const ValueRoot*, PickleId, const ValueRoot*, PickleId>> met_;
};

}  // namespace plumbline::audit
