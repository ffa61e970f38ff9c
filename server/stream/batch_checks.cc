#include "server/stream/batch_checks.h"

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/dtype.h"
#include "proto/evidence_samples.h"

namespace plumbline::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using rules::BatchPlace;

constexpr int kMaxTensorRank = 8;

absl::Status CheckTensor(const BatchPlace& place, const std::vector<const FieldDescriptor*>& path,
                         const v1::Tensor& tensor) {
  const auto fail = [&](const std::string& what) {
    std::string where;
    for (const FieldDescriptor* field : path) absl::StrAppend(&where, ".", field->name());
    return place.Bad(absl::StrCat(where, ": ", what));
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

// The fields of a message type that are tensors, and those that contain some.
struct TensorFields {
  std::vector<const FieldDescriptor*> tensors, holders;
};
using FieldsByType = std::unordered_map<const Descriptor*, TensorFields>;

// Fills in the fields of a type and of all types that it contains. Returns true if there are
// tensors in it.
bool Find(const Descriptor* type, FieldsByType* all) {
  if (const auto known = all->find(type); known != all->end())
    return !known->second.tensors.empty() || !known->second.holders.empty();
  all->emplace(type, TensorFields());  // stops at a type that contains itself
  TensorFields found;
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (field->message_type() == v1::Tensor::descriptor()) {
      found.tensors.push_back(field);
    } else if (Find(field->message_type(), all)) {
      found.holders.push_back(field);
    }
  }
  const bool any = !found.tensors.empty() || !found.holders.empty();
  (*all)[type] = std::move(found);
  return any;
}

const FieldsByType& TensorFieldsOfEvidence() {
  static const auto* const all = [] {
    auto* fields = new FieldsByType;
    Find(v1::Evidence::descriptor(), fields);
    return fields;
  }();
  return *all;
}

// Calls `visit` with each message in the field, until one returns an error.
template <typename Visit>
absl::Status ForEach(const Message& message, const FieldDescriptor* field, const Visit& visit) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  if (!field->is_repeated()) {
    if (!reflection.HasField(message, field)) return absl::OkStatus();
    return visit(reflection.GetMessage(message, field));
  }
  const int count = reflection.FieldSize(message, field);
  for (int i = 0; i < count; ++i) {
    if (auto s = visit(reflection.GetRepeatedMessage(message, field, i)); !s.ok()) return s;
  }
  return absl::OkStatus();
}

// Checks every tensor in the message, for any kind of evidence. `path` lists the fields that lead
// to it.
absl::Status CheckTensors(const BatchPlace& place, const Message& message,
                          std::vector<const FieldDescriptor*>* path) {
  const TensorFields& fields = TensorFieldsOfEvidence().at(message.GetDescriptor());
  for (const auto* list : {&fields.tensors, &fields.holders}) {
    for (const FieldDescriptor* field : *list) {
      path->push_back(field);
      const auto visit = [&](const Message& inner) {
        return list == &fields.tensors
                   ? CheckTensor(place, *path, static_cast<const v1::Tensor&>(inner))
                   : CheckTensors(place, inner, path);
      };
      if (auto s = ForEach(message, field, visit); !s.ok()) return s;
      path->pop_back();
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSamples(const v1::Batch& batch) {
  std::vector<const FieldDescriptor*> path;
  for (int i = 0; i < batch.evidence_size(); ++i) {
    if (!HasSample(batch.evidence(i))) continue;
    if (auto s = CheckTensors({"evidence", i}, batch.evidence(i), &path); !s.ok()) return s;
  }
  return absl::OkStatus();
}

// Checks the shape as far as possible without the set.
absl::Status CheckRows(const BatchPlace& place, const v1::SeriesRows& rows, int sources) {
  const int n = rows.step_size();
  if (rows.source_size() != n && rows.source_size() != 1) {
    return place.Bad(absl::StrCat(".source: ", rows.source_size(), " entries for ", n,
                                  " rows, expected one or one per row"));
  }
  for (const uint32_t source : rows.source()) {
    if (source < static_cast<uint32_t>(sources)) continue;
    return place.Bad(
        absl::StrCat(".source: ", source, ", but the batch names ", sources, " sources"));
  }
  for (const int64_t step : rows.step()) {
    if (step < 0) return place.Bad(absl::StrCat(".step: ", step, ", expected at least 0"));
  }
  const size_t bytes = (static_cast<size_t>(rows.value_size()) + 7) / 8;
  if (!rows.absent().empty() && rows.absent().size() != bytes) {
    return place.Bad(absl::StrCat(".absent: ", rows.absent().size(), " bytes for ",
                                  rows.value_size(), " values, expected ", bytes, " or none"));
  }
  return absl::OkStatus();
}

absl::Status CheckSeries(const v1::Batch& batch, const BatchLimits& limits) {
  for (int i = 0; i < batch.series_sets_size(); ++i) {
    if (auto s = CheckSeriesSet(batch.series_sets(i), limits); !s.ok()) {
      return BatchPlace{"series_sets", i}.Bad(std::string(s.message()));
    }
  }
  for (int i = 0; i < batch.series_size(); ++i) {
    if (auto s = CheckRows({"series", i}, batch.series(i), batch.sources_size()); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSeriesSet(const v1::SeriesSet& set, const BatchLimits& limits) {
  if (set.id() == 0) return absl::InvalidArgumentError(".id: 0, expected another number");
  if (set.sites_size() == 0 || set.sites_size() > limits.max_columns) {
    return absl::InvalidArgumentError(
        absl::StrCat(".sites: ", set.sites_size(), " series, expected 1 to ", limits.max_columns));
  }
  for (int i = 0; i < set.sites_size(); ++i) {
    const v1::Site& site = set.sites(i);
    const BatchPlace place{".sites", i};
    if (site.layer().empty() && site.op().empty())
      return place.Bad(": names neither a layer nor an op");
    if (auto s = place.CheckName("layer", site.layer(), limits.max_name_bytes); !s.ok()) return s;
    if (auto s = place.CheckName("op", site.op(), limits.max_name_bytes); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status CheckReceived(const v1::Batch& batch, const BatchLimits& limits) {
  if (auto s = rules::CheckBatch(batch, limits); !s.ok()) return s;
  if (auto s = CheckSeries(batch, limits); !s.ok()) return s;
  return CheckSamples(batch);
}

absl::Status CheckKept(const v1::Batch& batch) {
  BatchLimits limits = rules::kLooseLimits;
  limits.max_runs = BatchLimits().max_runs;
  limits.max_rank = BatchLimits().max_rank;
  return CheckReceived(batch, limits);
}

}  // namespace plumbline::server
