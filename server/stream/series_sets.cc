#include "server/stream/series_sets.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

SetRecord RecordOf(const v1::SeriesSet& set) {
  v1::Batch one;
  *one.add_series_sets() = set;
  return {set.id(), one.SerializeAsString()};
}

size_t HashOf(const SetRecord& record) { return std::hash<std::string>()(record.second); }

std::string Name(uint64_t id) { return absl::StrCat("0x", absl::Hex(id)); }

}  // namespace

absl::Status SeriesSets::Add(const Declared& sets, size_t max_sets, std::vector<SetRecord>* fresh) {
  std::vector<SetRecord> added;
  std::map<uint64_t, Known> fresh_sets;
  for (const v1::SeriesSet& set : sets) {
    SetRecord record = RecordOf(set);
    const Known known{set.sites_size(), HashOf(record)};
    const auto before = sets_.find(set.id());
    const auto twin = fresh_sets.find(set.id());
    const Known* earlier = before != sets_.end()      ? &before->second
                           : twin != fresh_sets.end() ? &twin->second
                                                      : nullptr;
    if (earlier == nullptr) {
      fresh_sets.emplace(set.id(), known);
      added.push_back(std::move(record));
    } else if (earlier->hash != known.hash) {
      return absl::InvalidArgumentError(
          absl::StrCat("series set ", Name(set.id()), ": declared before with different series"));
    }
  }
  if (sets_.size() + added.size() > max_sets) {
    return absl::InvalidArgumentError(absl::StrCat(sets_.size() + added.size(),
                                                   " series sets on one stream, at most ", max_sets,
                                                   " are accepted"));
  }
  sets_.insert(fresh_sets.begin(), fresh_sets.end());
  std::move(added.begin(), added.end(), std::back_inserter(*fresh));
  return absl::OkStatus();
}

void SeriesSets::Restore(std::string_view record) {
  v1::Batch one;
  if (!one.ParseFromArray(record.data(), static_cast<int>(record.size()))) return;
  std::vector<SetRecord> unused;
  (void)Add(one.series_sets(), ~size_t{0}, &unused);
}

absl::Status SeriesSets::CheckRows(const v1::Batch& batch) const {
  std::map<uint64_t, int64_t> here;
  for (const v1::SeriesSet& set : batch.series_sets()) here[set.id()] = set.sites_size();
  for (int i = 0; i < batch.series_size(); ++i) {
    const v1::SeriesRows& rows = batch.series(i);
    int64_t columns = -1;
    if (const auto known = sets_.find(rows.set()); known != sets_.end()) {
      columns = known->second.columns;
    }
    if (const auto known = here.find(rows.set()); known != here.end()) columns = known->second;
    if (columns < 0) {
      return absl::InvalidArgumentError(absl::StrCat("series[", i, "].set: ", Name(rows.set()),
                                                     " was not declared on this stream"));
    }
    const int64_t expected = int64_t{rows.step_size()} * columns;
    if (rows.value_size() != expected) {
      return absl::InvalidArgumentError(absl::StrCat("series[", i, "].value: ", rows.value_size(),
                                                     " values for ", rows.step_size(), " rows of ",
                                                     columns, " series, expected ", expected));
    }
  }
  return absl::OkStatus();
}

}  // namespace plumbline::server
