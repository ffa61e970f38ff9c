// Returns the elements that a site keeps of a tensor at a step, for trainers that gather them
// themselves.
#include <algorithm>
#include <string>

#include "agent/core/run/run.h"
#include "agent/core/shared/error.h"
#include "kernels/core/sample_index.h"
#include "probes/reduction_probe.h"
#include "probes/tensor_probe.h"
#include "probes/update_probe.h"

namespace plumbline::agent {
namespace {

uint32_t SamplesOf(SiteKind kind) {
  switch (kind) {
    case SiteKind::kReduction:
      return probes::kReductionSamples;
    case SiteKind::kTensor:
      return probes::kTensorSamples;
    case SiteKind::kUpdate:
      return probes::kUpdateSamples;
    default:
      return 0;
  }
}

}  // namespace

plumbline_status_t Run::SampleIndices(const Site& site, int64_t step, uint64_t count, uint64_t* out,
                                      uint32_t capacity, uint32_t* n,
                                      plumbline_error_t* error) const {
  const uint32_t most = SamplesOf(site.kind);
  if (most == 0) {
    return Fail(error, PLUMBLINE_INVALID_ARGUMENT,
                "sample_indices \"" + site.layer +
                    "\": expected a site of a tensor, a reduction "
                    "or an update");
  }
  *n = 0;
  if (step == kCaptureStep || !state_->SampleDue(site, step)) return PLUMBLINE_OK;
  const auto m = static_cast<uint32_t>(std::min<uint64_t>({count, capacity, most}));
  const uint64_t key = SampleKey(state_->options.run, step, site.layer, site.op);
  for (uint32_t i = 0; i < m; ++i) out[i] = SampleIndex(key, count, i);
  *n = m;
  return PLUMBLINE_OK;
}

}  // namespace plumbline::agent
