#include "probes/device/job.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>

#include "kernels/core/strided.h"
#include "kernels/sample/batch.h"

namespace plumbline::probes {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t Aligned(size_t n) { return (n + kAlign - 1) & ~(kAlign - 1); }

// The results of the largest launch.
static_assert(kArrivedBytes + sizeof(TensorRaw) + DeviceExponents(DType::kF64) * sizeof(uint64_t) <=
              kJobWorkspace);
static_assert(kArrivedBytes + sizeof(UpdateRaw) <= kJobWorkspace);
static_assert(kUpdateTensors <= kGraphGathers);

static_assert(std::is_trivially_copyable_v<TensorJob> && std::is_trivially_copyable_v<UpdateJob>);

// The present tensors of a call.
struct Kept {
  std::array<const TensorView*, kUpdateTensors> views{};
  size_t n = 0;

  void Add(const TensorView& view) {
    if (view.present()) views[n++] = &view;
  }
  std::span<const TensorView* const> all() const { return {views.data(), n}; }
};

Kept KeptOf(const TensorCall& call) {
  Kept kept;
  kept.Add(call.values);
  return kept;
}

Kept KeptOf(const UpdateCall& call) {
  const UpdateInput& in = call.input;
  Kept kept;
  for (const TensorView* view :
       {&in.before, &in.after, &in.intended, &in.gradient, &in.moment_before, &in.moment_after}) {
    kept.Add(*view);
  }
  return kept;
}

// Returns the sample's one row.
TensorView RowOf(const TensorView& tensor, const TensorSample& sample) {
  const int64_t at = AxesOf(tensor).Offset(sample.first * sample.width);
  TensorView row = TensorView::Dense(tensor.data, tensor.dtype, sample.width);
  row.data = static_cast<const std::byte*>(tensor.data) +
             at * static_cast<int64_t>(DTypeSize(tensor.dtype));
  if (tensor.rank > 0) row.stride[0] = tensor.stride[static_cast<size_t>(tensor.rank - 1)];
  row.device = tensor.device;
  return row;
}

void PlanElements(const Kept& kept, const TensorSample& sample, DeviceJob* job) {
  job->sampled = true;
  job->sample = sample;
  const int64_t n = sample.elements();
  if (n == 0) return;
  // One row may be long, and an index has as many bytes as the element; several rows are few
  // elements.
  if (sample.whole_rows && sample.rows == 1) {
    job->row = RowOf(*kept.views[0], sample);
    return;
  }
  BatchShape& gather = job->gather;
  gather.device = kept.views[0]->device;
  gather.items = static_cast<int32_t>(kept.n);
  gather.work = n * gather.items;
  gather.item_bytes = kept.n * (sizeof(GatherItem) + static_cast<size_t>(n) * sizeof(uint64_t));
  for (const TensorView* view : kept.all()) gather.result_bytes += GatherBytes(view->dtype, n);
}

void PutGathersOf(const Kept& kept, const TensorSample& sample, GatherPlace* place) {
  const int64_t n = sample.elements();
  const uint64_t* first = place->indices;
  sample.Indices(place->indices);
  for (const TensorView* view : kept.all()) {
    GatherItem item = PlanItem(*view, n);
    item.first_span = place->span;
    item.result = place->result;
    std::memcpy(place->items, &item, sizeof(item));
    place->items += sizeof(item);
    if (place->indices != first) std::copy_n(first, n, place->indices);
    place->indices += n;
    place->span += n;
    place->result += GatherBytes(view->dtype, n);
  }
}

std::string_view Keep(std::string_view text, char* to) {
  const size_t n = std::min(text.size(), kMaxTextBytes);
  if (n > 0) std::memcpy(to, text.data(), n);
  return {to, n};
}

template <typename Job>
size_t BytesOf(const Job& job) {
  return Aligned(sizeof(Job)) + Aligned(job.figures.bytes()) + job.ElementBytes();
}

template <typename Job>
Job* Put(const Job& planned, std::byte* memory) {
  auto* job = new (memory) Job(planned);
  KeepTexts(job);
  job->figures_at = memory + Aligned(sizeof(Job));
  std::memcpy(job->figures_at, &job->item, sizeof(job->item));
  if (job->ElementBytes() == 0) return job;
  job->elements_at = job->figures_at + Aligned(job->figures.bytes());
  if (job->gather.items == 0) return job;
  std::byte* indices =
      job->elements_at + static_cast<size_t>(job->gather.items) * sizeof(GatherItem);
  GatherPlace place{job->elements_at, reinterpret_cast<uint64_t*>(indices)};
  PutGathers(*job, &place);
  return job;
}

}  // namespace

void KeepTexts(TensorJob* job) {
  job->call.role = Keep(job->call.role, job->role);
  job->call.replicas = Keep(job->call.replicas, job->replicas);
}
void KeepTexts(UpdateJob* job) { job->call.optimizer = Keep(job->call.optimizer, job->optimizer); }

void PutGathers(const TensorJob& job, GatherPlace* place) {
  PutGathersOf(KeptOf(job.call), job.sample, place);
}
void PutGathers(const UpdateJob& job, GatherPlace* place) {
  PutGathersOf(KeptOf(job.call), job.sample, place);
}

size_t DeviceJob::ElementBytes() const {
  if (left_out) return 0;
  if (!row.present()) return gather.bytes();
  return static_cast<size_t>(row.elements()) * DTypeSize(row.dtype);
}

absl::Status PlanJob(const TensorCall& call, const MeasureOptions& options, TensorJob* job) {
  if (absl::Status s = PlanItem(call.values, "values", &job->item); !s.ok()) return s;
  job->call = call;
  job->figures = ShapeOf(job->item, call.values.device);
  if (!options.sampled) return absl::OkStatus();
  const bool rows = KeepsRows(call.role);
  PlanElements(KeptOf(call),
               ChooseSample(call.values, job->item.count, rows, options.key,
                            rows ? kMaxSamples : kTensorSamples, options.sample_max_bytes),
               job);
  return absl::OkStatus();
}

absl::Status PlanJob(const UpdateCall& call, const MeasureOptions& options, UpdateJob* job) {
  const UpdateInput& in = call.input;
  absl::Status s = PlanItem({in.before, in.after, in.intended}, &job->item);
  if (!s.ok()) return s;
  job->call = call;
  job->figures = ShapeOf(job->item, in.before.device);
  if (!options.sampled) return s;
  constexpr uint64_t kNoLimit = ~uint64_t{0};  // there are few of them
  PlanElements(
      KeptOf(call),
      ChooseSample(in.before, job->item.count, false, options.key, kUpdateSamples, kNoLimit), job);
  return s;
}

void LeaveOut(DeviceJob* job) {
  job->left_out = true;
  job->gather = BatchShape();
  job->row = TensorView();
}

size_t JobBytes(const TensorJob& job) { return BytesOf(job); }
size_t JobBytes(const UpdateJob& job) { return BytesOf(job); }
TensorJob* PutJob(const TensorJob& job, std::byte* memory) { return Put(job, memory); }
UpdateJob* PutJob(const UpdateJob& job, std::byte* memory) { return Put(job, memory); }

namespace {

// Describes a row as units of a copy: of eight bytes, if its elements are adjacent and allow it.
GraphCopy CopyOf(const TensorView& row, const std::byte* to) {
  const auto size = static_cast<uint32_t>(DTypeSize(row.dtype));
  const int64_t count = row.elements();
  GraphCopy copy{row.data, 1, count, 0, row.rank > 0 ? row.stride[0] : 1, 0, size, 0};
  const auto bytes = static_cast<uint64_t>(count) * size;
  const uint64_t all =
      reinterpret_cast<uintptr_t>(row.data) | reinterpret_cast<uintptr_t>(to) | bytes;
  if (copy.column_stride != 1 || all % sizeof(uint64_t) != 0) return copy;
  copy.size = sizeof(uint64_t);
  copy.columns = static_cast<int64_t>(bytes / sizeof(uint64_t));
  return copy;
}

}  // namespace

bool QueryElements(const DeviceJob& job, std::byte* elements, SampledPart* part) {
  if (job.elements_at == nullptr) return false;
  if (job.row.present()) {
    part->copies = 1;
    part->row = CopyOf(job.row, elements);
    part->row_to = reinterpret_cast<unsigned char*>(elements);
    return true;
  }
  QueryGathers(job.gather, job.elements_at, elements, part);
  return true;
}

void QueryGathers(const BatchShape& gathers, const std::byte* at, std::byte* to,
                  SampledPart* part) {
  const auto count = static_cast<size_t>(gathers.items);
  auto* on_device = reinterpret_cast<unsigned char*>(to);
  part->gathers = static_cast<uint32_t>(count);
  part->samples = gathers.work;
  part->indices = reinterpret_cast<const uint64_t*>(on_device + count * sizeof(GatherItem));
  part->gathered = on_device + gathers.results_at();
  std::memcpy(static_cast<void*>(part->gather), at, count * sizeof(GatherItem));
}

UpdateInput ElementsOf(const UpdateJob& job) {
  UpdateInput out;
  TensorView* const to[kUpdateTensors] = {&out.before,   &out.after,         &out.intended,
                                          &out.gradient, &out.moment_before, &out.moment_after};
  const std::byte* from = job.elements();
  const int64_t n = job.sample.elements();
  const auto views = Tensors(job.call.input);
  for (size_t i = 0; i < kUpdateTensors; ++i) {
    if (!views[i].present()) continue;
    *to[i] = TensorView::Dense(from, views[i].dtype, n);
    if (from != nullptr) from += GatherBytes(views[i].dtype, n);
  }
  return out;
}

}  // namespace plumbline::probes
