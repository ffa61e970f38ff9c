#include "server/stream/batch_checks.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/dtype.h"

namespace plumbline::server {
namespace {

constexpr int kMaxTensorRank = 8;

// Where in the batch: built only when something is wrong.
struct Place {
  const char* list;
  int index;
  std::string Text() const { return absl::StrCat(list, "[", index, "]"); }
};

absl::Status Bad(const Place& place, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(place.Text(), std::string(what)));
}

absl::Status CheckName(const Place& place, const char* field, const std::string& name,
                       const BatchLimits& limits) {
  if (name.size() <= limits.max_name_bytes) return absl::OkStatus();
  return Bad(place, absl::StrCat(".", field, ": ", name.size(), " bytes, at most ",
                                 limits.max_name_bytes, " are accepted"));
}

absl::Status CheckSiteAndSource(const Place& place, uint32_t source, bool has_site,
                                const v1::Site& site, int sources, const BatchLimits& limits) {
  if (source >= static_cast<uint32_t>(sources)) {
    return Bad(place,
               absl::StrCat(".source: ", source, ", but the batch names ", sources, " sources"));
  }
  if (!has_site) return absl::OkStatus();
  if (auto s = CheckName(place, "site.layer", site.layer(), limits); !s.ok()) return s;
  return CheckName(place, "site.op", site.op(), limits);
}

absl::Status CheckTensor(const Place& place, const char* sample, const char* field,
                         const v1::Tensor& tensor) {
  const auto fail = [&](const std::string& what) {
    return Bad(place, absl::StrCat(".", sample, ".", field, ": ", what));
  };
  if (tensor.shape_size() > kMaxTensorRank) {
    return fail(absl::StrCat(tensor.shape_size(), " axes, at most ", kMaxTensorRank));
  }
  const size_t width = DTypeSize(static_cast<DType>(tensor.dtype()));
  if (width == 0) return fail(absl::StrCat("unknown element type ", tensor.dtype()));
  size_t expected = width;
  for (const int64_t extent : tensor.shape()) {
    if (extent < 0) return fail(absl::StrCat("negative extent ", extent));
    if (__builtin_mul_overflow(expected, static_cast<size_t>(extent), &expected)) {
      return fail("the shape overflows");
    }
  }
  if (expected != tensor.data().size()) {
    return fail(absl::StrCat(tensor.data().size(), " bytes of data for ",
                             DTypeName(static_cast<DType>(tensor.dtype())), " [",
                             absl::StrJoin(tensor.shape(), ","), "], expected ", expected));
  }
  return absl::OkStatus();
}

struct NamedTensor {
  const char* name;
  bool present;
  const v1::Tensor& tensor;
};

absl::Status CheckTensors(const Place& place, const char* sample,
                          std::initializer_list<NamedTensor> tensors) {
  for (const NamedTensor& t : tensors) {
    if (!t.present) continue;
    if (auto s = CheckTensor(place, sample, t.name, t.tensor); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status CheckRouting(const Place& place, const v1::Routing& routing) {
  if (!routing.has_sample()) return absl::OkStatus();
  const v1::RoutingSample& s = routing.sample();
  return CheckTensors(place, "routing.sample",
                      {
                          {"scores", s.has_scores(), s.scores()},
                          {"expert_bias", s.has_expert_bias(), s.expert_bias()},
                          {"topk_indices", s.has_topk_indices(), s.topk_indices()},
                          {"keep_mask", s.has_keep_mask(), s.keep_mask()},
                          {"routing_map", s.has_routing_map(), s.routing_map()},
                          {"probs", s.has_probs(), s.probs()},
                          {"sequence_id", s.has_sequence_id(), s.sequence_id()},
                          {"position", s.has_position(), s.position()},
                          {"padding_mask", s.has_padding_mask(), s.padding_mask()},
                          {"pool_id", s.has_pool_id(), s.pool_id()},
                      });
}

absl::Status CheckUpdate(const Place& place, const v1::UpdateSample& s) {
  return CheckTensors(place, "update.sample",
                      {{"offsets", s.has_offsets(), s.offsets()},
                       {"before", s.has_before(), s.before()},
                       {"after", s.has_after(), s.after()},
                       {"intended", s.has_intended(), s.intended()},
                       {"gradient", s.has_gradient(), s.gradient()},
                       {"moment_before", s.has_moment_before(), s.moment_before()},
                       {"moment_after", s.has_moment_after(), s.moment_after()}});
}

absl::Status CheckSide(const Place& place, const char* name, const v1::LogprobsSide& s) {
  return CheckTensors(place, name,
                      {{"logprobs", s.has_logprobs(), s.logprobs()},
                       {"entropy", s.has_entropy(), s.entropy()},
                       {"varentropy", s.has_varentropy(), s.varentropy()}});
}

absl::Status CheckSequence(const Place& place, const v1::LogprobsSequence& s) {
  absl::Status status =
      CheckTensors(place, "logprobs.sequence",
                   {{"positions", s.has_positions(), s.positions()},
                    {"tokens", s.has_tokens(), s.tokens()},
                    {"weight_versions", s.has_weight_versions(), s.weight_versions()},
                    {"advantages", s.has_advantages(), s.advantages()},
                    {"turns", s.has_turns(), s.turns()}});
  if (status.ok()) status = CheckSide(place, "logprobs.rollout", s.rollout());
  return status.ok() ? CheckSide(place, "logprobs.train", s.train()) : status;
}

absl::Status CheckSample(const Place& place, const v1::Evidence& e) {
  switch (e.what_case()) {
    case v1::Evidence::kRouting:
      return CheckRouting(place, e.routing());
    case v1::Evidence::kTensor: {
      const v1::TensorSample& s = e.tensor().sample();
      return CheckTensors(
          place, "tensor.sample",
          {{"values", s.has_values(), s.values()}, {"offsets", s.has_offsets(), s.offsets()}});
    }
    case v1::Evidence::kReduction: {
      const v1::ReductionSample& s = e.reduction().sample();
      return CheckTensors(place, "reduction.sample",
                          {{"inputs", s.has_inputs(), s.inputs()},
                           {"output", s.has_output(), s.output()},
                           {"offsets", s.has_offsets(), s.offsets()}});
    }
    case v1::Evidence::kLogprobs:
      for (const v1::LogprobsSequence& s : e.logprobs().sequences()) {
        if (absl::Status status = CheckSequence(place, s); !status.ok()) return status;
      }
      return absl::OkStatus();
    case v1::Evidence::kLogits:
      for (const v1::LogitsWitness& w : e.logits().worst()) {
        if (absl::Status status = CheckTensors(
                place, "logits.worst",
                {{"train", w.has_train(), w.train()}, {"rollout", w.has_rollout(), w.rollout()}});
            !status.ok())
          return status;
      }
      return absl::OkStatus();
    case v1::Evidence::kUpdate:
      return CheckUpdate(place, e.update().sample());
    case v1::Evidence::kMatmul: {
      const v1::MatmulSample& s = e.matmul().sample();
      return CheckTensors(place, "matmul.sample",
                          {{"a", s.has_a(), s.a()},
                           {"b", s.has_b(), s.b()},
                           {"d", s.has_d(), s.d()},
                           {"c", s.has_c(), s.c()},
                           {"offsets", s.has_offsets(), s.offsets()},
                           {"a_index", s.has_a_index(), s.a_index()},
                           {"b_index", s.has_b_index(), s.b_index()}});
    }
    default:
      return absl::OkStatus();
  }
}

absl::Status CheckEvidence(const v1::Batch& batch, const BatchLimits& limits) {
  for (int i = 0; i < batch.evidence_size(); ++i) {
    const v1::Evidence& e = batch.evidence(i);
    const Place place{"evidence", i};
    if (e.site().layer().empty() && e.site().op().empty()) {
      return Bad(place, ".site: names neither a layer nor an op");
    }
    if (e.step() < 0) return Bad(place, absl::StrCat(".step: ", e.step(), ", expected at least 0"));
    if (auto s =
            CheckSiteAndSource(place, e.source(), true, e.site(), batch.sources_size(), limits);
        !s.ok()) {
      return s;
    }
    if (auto s = CheckSample(place, e); !s.ok()) return s;
  }
  return absl::OkStatus();
}

// The shape as far as it shows without the set.
absl::Status CheckRows(const Place& place, const v1::SeriesRows& rows, int sources) {
  const int n = rows.step_size();
  if (rows.source_size() != n && rows.source_size() != 1) {
    return Bad(place, absl::StrCat(".source: ", rows.source_size(), " entries for ", n,
                                   " rows, expected one or one a row"));
  }
  for (const uint32_t source : rows.source()) {
    if (source < static_cast<uint32_t>(sources)) continue;
    return Bad(place,
               absl::StrCat(".source: ", source, ", but the batch names ", sources, " sources"));
  }
  for (const int64_t step : rows.step()) {
    if (step < 0) return Bad(place, absl::StrCat(".step: ", step, ", expected at least 0"));
  }
  const size_t bytes = (static_cast<size_t>(rows.value_size()) + 7) / 8;
  if (!rows.absent().empty() && rows.absent().size() != bytes) {
    return Bad(place, absl::StrCat(".absent: ", rows.absent().size(), " bytes for ",
                                   rows.value_size(), " values, expected ", bytes, " or none"));
  }
  return absl::OkStatus();
}

absl::Status CheckSeries(const v1::Batch& batch, const BatchLimits& limits) {
  for (int i = 0; i < batch.series_sets_size(); ++i) {
    if (auto s = CheckSeriesSet(batch.series_sets(i), limits); !s.ok()) {
      return Bad({"series_sets", i}, std::string(s.message()));
    }
  }
  for (int i = 0; i < batch.series_size(); ++i) {
    if (auto s = CheckRows({"series", i}, batch.series(i), batch.sources_size()); !s.ok()) return s;
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
  } names[] = {
      {"run", source.run()}, {"host", source.host()}, {"tool_version", source.tool_version()}};
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
  if (source.world_size() > limits.max_world || source.rank() >= limits.max_world) {
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

absl::Status CheckSeriesSet(const v1::SeriesSet& set, const BatchLimits& limits) {
  if (set.id() == 0) return absl::InvalidArgumentError(".id: 0, expected another number");
  if (set.sites_size() == 0 || set.sites_size() > limits.max_columns) {
    return absl::InvalidArgumentError(
        absl::StrCat(".sites: ", set.sites_size(), " series, expected 1 to ", limits.max_columns));
  }
  for (int i = 0; i < set.sites_size(); ++i) {
    const v1::Site& site = set.sites(i);
    const Place place{".sites", i};
    if (site.layer().empty() && site.op().empty())
      return Bad(place, ": names neither a layer nor an op");
    if (auto s = CheckName(place, "layer", site.layer(), limits); !s.ok()) return s;
    if (auto s = CheckName(place, "op", site.op(), limits); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status CheckBatch(const v1::Batch& batch, const BatchLimits& limits) {
  if (auto s = CheckSources(batch.sources(), limits); !s.ok()) return s;
  if (auto s = CheckSeries(batch, limits); !s.ok()) return s;
  if (auto s = CheckEvidence(batch, limits); !s.ok()) return s;
  // Each is looked at by itself, and one a source says it all.
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
    if (auto s = CheckName({"losses", i}, "cause", batch.losses(i).cause(), limits); !s.ok())
      return s;
  }
  for (int i = 0; i < batch.declarations_size(); ++i) {
    if (auto s = CheckName({"declarations", i}, "kind", batch.declarations(i).kind(), limits);
        !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckKeptBatch(const v1::Batch& batch) {
  BatchLimits limits;
  limits.max_name_bytes = SIZE_MAX;
  limits.max_sources = INT_MAX;
  limits.max_columns = INT_MAX;
  limits.max_role = INT_MAX;
  limits.max_words = INT_MAX;
  return CheckBatch(batch, limits);
}

}  // namespace plumbline::server
