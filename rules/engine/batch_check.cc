#include "rules/engine/batch_check.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"

namespace plumbline::rules {
namespace {

absl::Status CheckSiteAndSource(const BatchPlace& place, uint32_t source, bool has_site,
                                const v1::Site& site, int sources, const BatchLimits& limits) {
  if (source >= static_cast<uint32_t>(sources)) {
    return place.Bad(
        absl::StrCat(".source: ", source, ", but the batch names ", sources, " sources"));
  }
  if (!has_site) return absl::OkStatus();
  if (auto s = place.CheckName("site.layer", site.layer(), limits.max_name_bytes); !s.ok())
    return s;
  return place.CheckName("site.op", site.op(), limits.max_name_bytes);
}

absl::Status CheckEvidence(const v1::Batch& batch, const BatchLimits& limits) {
  for (int i = 0; i < batch.evidence_size(); ++i) {
    const v1::Evidence& e = batch.evidence(i);
    const BatchPlace place{"evidence", i};
    if (e.site().layer().empty() && e.site().op().empty()) {
      return place.Bad(".site: names neither a layer nor an op");
    }
    if (e.step() < 0) return place.Bad(absl::StrCat(".step: ", e.step(), ", expected at least 0"));
    if (auto s =
            CheckSiteAndSource(place, e.source(), true, e.site(), batch.sources_size(), limits);
        !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

template <typename Entries>
absl::Status CheckEntries(const char* name, const Entries& entries, const v1::Batch& batch,
                          const BatchLimits& limits) {
  for (int i = 0; i < entries.size(); ++i) {
    const auto& entry = entries.Get(i);
    if (auto s = CheckSiteAndSource({name, i}, entry.source(), entry.has_site(), entry.site(),
                                    batch.sources_size(), limits);
        !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSource(const v1::Source& source, const BatchLimits& limits) {
  const struct {
    const char* field;
    const std::string& value;
  } names[] = {{"run", source.run()},
               {"host", source.host()},
               {"user", source.user()},
               {"tool_version", source.tool_version()}};
  for (const auto& n : names) {
    if (n.value.size() > limits.max_name_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(n.field, ": ", n.value.size(),
                                                     " bytes, at most ", limits.max_name_bytes,
                                                     " are accepted"));
    }
  }
  if (const int role = source.role();
      (role < 0 || role > limits.max_role) && limits.max_role < INT_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("role ", role, ", expected one from 0 to ", limits.max_role));
  }
  if (source.world_size() > limits.max_world || source.rank() > limits.max_rank) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", source.rank(), " of ",
                                                   source.world_size(), " ranks, at most ",
                                                   limits.max_world, " are accepted"));
  }
  if (source.world_size() != 0 && source.rank() >= source.world_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", source.rank(), " of ", source.world_size(), " ranks"));
  }
  return absl::OkStatus();
}

absl::Status CheckSources(const google::protobuf::RepeatedPtrField<v1::Source>& sources,
                          const BatchLimits& limits) {
  if (sources.size() > limits.max_sources) {
    return absl::InvalidArgumentError(
        absl::StrCat(sources.size(), " sources, at most ", limits.max_sources, " are accepted"));
  }
  std::set<std::string_view> runs;
  for (int i = 0; i < sources.size(); ++i) {
    if (auto s = CheckSource(sources[i], limits); !s.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("sources[", i, "]: ", std::string(s.message())));
    }
    if (i == 0 || sources[i].run() != sources[i - 1].run()) runs.insert(sources[i].run());
  }
  if (runs.size() <= limits.max_runs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("sources of ", runs.size(), " runs, at most ",
                                                 limits.max_runs, " are accepted"));
}

absl::Status CheckBatch(const v1::Batch& batch, const BatchLimits& limits) {
  if (auto s = CheckSources(batch.sources(), limits); !s.ok()) return s;
  if (auto s = CheckEvidence(batch, limits); !s.ok()) return s;
  // Each entry is checked on its own; this bounds how many there are per source.
  const int64_t words = int64_t{limits.max_words} * std::max(1, batch.sources_size());
  if (batch.progress_size() > words) {
    return absl::InvalidArgumentError(absl::StrCat("progress: ", batch.progress_size(),
                                                   " entries for ", batch.sources_size(),
                                                   " sources, at most ", words, " are accepted"));
  }
  for (int i = 0; i < batch.progress_size(); ++i) {
    if (auto s = CheckSiteAndSource({"progress", i}, batch.progress(i).source(), false, {},
                                    batch.sources_size(), limits);
        !s.ok()) {
      return s;
    }
  }
  if (auto s = CheckEntries("losses", batch.losses(), batch, limits); !s.ok()) return s;
  if (auto s = CheckEntries("declarations", batch.declarations(), batch, limits); !s.ok()) return s;
  for (int i = 0; i < batch.losses_size(); ++i) {
    if (auto s = BatchPlace{"losses", i}.CheckName("cause", batch.losses(i).cause(),
                                                   limits.max_name_bytes);
        !s.ok())
      return s;
  }
  for (int i = 0; i < batch.declarations_size(); ++i) {
    if (auto s = BatchPlace{"declarations", i}.CheckName("kind", batch.declarations(i).kind(),
                                                         limits.max_name_bytes);
        !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

}  // namespace plumbline::rules
