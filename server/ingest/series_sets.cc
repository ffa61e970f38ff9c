#include "server/ingest/series_sets.h"

#include <algorithm>
#include <functional>
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
  std::vector<std::pair<SetRecord, Known>> added;
  for (const v1::SeriesSet& set : sets) {
    SetRecord record = RecordOf(set);
    const Known known{set.sites_size(), HashOf(record)};
    const auto same_id = [&](const auto& other) { return other.first.first == set.id(); };
    const auto twin = std::find_if(added.begin(), added.end(), same_id);
    const auto before = sets_.find(set.id());
    const Known* earlier = twin != added.end()     ? &twin->second
                           : before != sets_.end() ? &before->second
                                                   : nullptr;
    if (earlier == nullptr) {
      added.emplace_back(std::move(record), known);
    } else if (earlier->hash != known.hash) {
      return absl::InvalidArgumentError(
          absl::StrCat("series set ", Name(set.id()), ": declared before with other series"));
    }
  }
  if (sets_.size() + added.size() > max_sets) {
    return absl::InvalidArgumentError(absl::StrCat(sets_.size() + added.size(),
                                                   " series sets on one stream, at most ", max_sets,
                                                   " are accepted"));
  }
  for (auto& [record, known] : added) {
    sets_.emplace(record.first, known);
    fresh->push_back(std::move(record));
  }
  return absl::OkStatus();
}

void SeriesSets::Restore(std::string_view record) {
  v1::Batch one;
  if (!one.ParseFromArray(record.data(), static_cast<int>(record.size()))) return;
  std::vector<SetRecord> unused;
  (void)Add(one.series_sets(), ~size_t{0}, &unused);
}

absl::Status SeriesSets::CheckRows(const v1::Batch& batch) const {
  for (int i = 0; i < batch.series_size(); ++i) {
    const v1::SeriesRows& rows = batch.series(i);
    int64_t columns = -1;
    if (const auto known = sets_.find(rows.set()); known != sets_.end()) {
      columns = known->second.columns;
    }
    for (const v1::SeriesSet& set : batch.series_sets()) {
      if (set.id() == rows.set()) columns = set.sites_size();
    }
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
