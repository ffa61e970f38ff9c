#include "probes/device/captured_calls.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "probes/device/slots.h"

namespace plumbline::probes {
namespace {

static_assert(kUpdateTensors <= kGraphGathers && kRoutingTensors <= kGraphCopies);

constexpr const char* kNoRoom = "the device's ring had no room for the sampled rows and columns";

GraphCopy CopyOf(const TensorView& v, uint64_t to) {
  GraphCopy copy{};
  copy.data = v.data;
  copy.rows = v.rank == 0 ? 1 : v.shape[0];
  copy.columns = v.rank == 2 ? v.shape[1] : 1;
  copy.row_stride = v.rank == 0 ? 1 : v.stride[0];
  copy.column_stride = v.rank == 2 ? v.stride[1] : 0;
  copy.to = to;
  copy.size = static_cast<uint32_t>(DTypeSize(v.dtype));
  return copy;
}

// Returns the offset from the section's begin.
uint64_t PlaceOf(const std::byte* p, const GraphWork* work) {
  return static_cast<uint64_t>(p - reinterpret_cast<const std::byte*>(work));
}

void Keep(std::string_view* view, std::string* text) {
  *text = *view;
  *view = *text;
}

}  // namespace

// ---- router calls ------------------------------------------------------------------------------

CapturedRouting::CapturedRouting(const RoutingCall& call, const RoutingPlan& plan)
    : call_(call), plan_(plan) {
  Keep(&call_.randomness, &randomness_);
  Keep(&call_.mode, &mode_);
  Keep(&call_.policy, &policy_);
}

bool CapturedRouting::Keeps(const MeasureOptions& options, bool elements) const {
  return elements && options.sampled && SampleBytes(call_) <= options.sample_max_bytes;
}

size_t CapturedRouting::Bytes(const MeasureOptions& options, bool elements) const {
  return PartBytes<RoutingSlot>() +
         (Keeps(options, elements) ? SlotBytes(call_) : SlotHeadBytes(call_));
}

void CapturedRouting::Put(const MeasureOptions& options, bool elements, std::byte* body,
                          GraphWork* work) const {
  auto* slot = new (body) RoutingSlot;
  slot->plan = plan_;
  work->results_at = PlaceOf(reinterpret_cast<const std::byte*>(&slot->raw), work);
  std::byte* head = body + PartBytes<RoutingSlot>();
  const bool keeps = Keeps(options, elements);
  const SlotOffsets offsets =
      StoreRoutingHead(call_, keeps ? SlotRows::kToFollow : SlotRows::kLeftOut, head);
  if (!keeps) return;
  const auto tensors = Tensors(call_.input);
  for (size_t i = 0; i < kRoutingTensors; ++i) {
    if (offsets[i] == 0) continue;
    work->copy[work->copies++] = CopyOf(*tensors[i], PlaceOf(head + offsets[i], work));
  }
}

void CapturedRouting::Show(const std::byte* body, DeviceItem* item) const {
  const auto* slot = std::launder(reinterpret_cast<const RoutingSlot*>(body));
  item->call = LoadRoutingCall(body + PartBytes<RoutingSlot>());
  item->plan = &slot->plan;
  item->raw = &slot->raw;
}

// ---- products ----------------------------------------------------------------------------------

CapturedProduct::CapturedProduct(const MatmulCall& call) : call_(call) {
  Keep(&call_.input_format, &input_format_);
  Keep(&call_.library, &library_);
  call_.no_sample_reason = {};
}

int64_t CapturedProduct::MostThreads() const {
  return ProductThreads(PlanOf(MeasureOptions{.sampled = true}, true));
}

ProductPlan CapturedProduct::PlanOf(const MeasureOptions& options, bool elements) const {
  return elements && options.sampled ? PlanSample(call_, options) : ProductPlan{};
}

size_t CapturedProduct::Bytes(const MeasureOptions& options, bool elements) const {
  const ProductPlan plan = PlanOf(options, elements);
  if (plan.elements == 0) return PartBytes<ProductSlot>();
  return PartBytes<ProductSlot>() + AlignedTo64(plan.bytes) + PartBytes<ProductPlan>();
}

void CapturedProduct::Put(const MeasureOptions& options, bool elements, std::byte* body,
                          GraphWork* work) const {
  const ProductPlan plan = PlanOf(options, elements);
  std::byte* gathered = PutProduct(call_, plan, body);
  if (plan.elements > 0) {
    std::byte* at = gathered + AlignedTo64(plan.bytes);
    new (at) ProductPlan(plan);
    work->plan_at = PlaceOf(at, work);
    work->plan_to = PlaceOf(gathered, work);
  } else if (options.sampled) {
    auto* slot = std::launder(reinterpret_cast<ProductSlot*>(body));
    slot->call.no_sample_reason = elements ? kProductTooLarge : kNoRoom;
  }
}

void CapturedProduct::Show(const std::byte* body, DeviceItem* item) const {
  item->product = &std::launder(reinterpret_cast<const ProductSlot*>(body))->call;
}

// ---- tensors and updates -----------------------------------------------------------------------

template <typename Job, typename Call>
Job CapturedJob<Job, Call>::Plan(const MeasureOptions& options, bool elements) const {
  Job job;
  (void)PlanJob(call_, options, &job);  // Figures has already verified that it can be planned
  if (!elements) LeaveOut(&job);
  return job;
}

template <typename Job, typename Call>
absl::Status CapturedJob<Job, Call>::Figures(BatchShape* shape, std::vector<std::byte>* content) {
  if (absl::Status s = PlanJob(call_, MeasureOptions{}, &plain_); !s.ok()) return s;
  *shape = plain_.figures;
  content->assign(plain_.figures.bytes(), std::byte{0});
  std::memcpy(content->data(), &plain_.item, sizeof(plain_.item));
  return absl::OkStatus();
}

template <typename Job, typename Call>
size_t CapturedJob<Job, Call>::Bytes(const MeasureOptions& options, bool elements) const {
  if (!options.sampled) return JobBytes(plain_);
  return JobBytes(Plan(options, elements));
}

template <typename Job, typename Call>
void CapturedJob<Job, Call>::Put(const MeasureOptions& options, bool elements, std::byte* body,
                                 GraphWork* work) const {
  const Job& job =
      *(options.sampled ? PutJob(Plan(options, elements), body) : PutJob(plain_, body));
  work->results_at = PlaceOf(job.results(), work);
  if (job.elements_at == nullptr) return;
  if (job.row.present()) {
    work->copy[work->copies++] = CopyOf(job.row, PlaceOf(job.elements_at, work));
    return;
  }
  work->gathers = static_cast<uint32_t>(job.gather.items);
  work->samples = job.gather.work;
  work->gather_at = PlaceOf(job.elements_at, work);
  work->gathered_at = PlaceOf(job.elements(), work);
}

template class CapturedJob<TensorJob, TensorCall>;
template class CapturedJob<UpdateJob, UpdateCall>;

CapturedTensor::CapturedTensor(const TensorCall& call) : CapturedJob(call) {
  Keep(&call_.role, &role_);
  Keep(&call_.replicas, &replicas_);
}

void CapturedTensor::Show(const std::byte* body, DeviceItem* item) const {
  item->tensor = std::launder(reinterpret_cast<const TensorJob*>(body));
}

CapturedUpdate::CapturedUpdate(const UpdateCall& call) : CapturedJob(call) {
  Keep(&call_.optimizer, &optimizer_);
}

void CapturedUpdate::Show(const std::byte* body, DeviceItem* item) const {
  item->update = std::launder(reinterpret_cast<const UpdateJob*>(body));
}

}  // namespace plumbline::probes
