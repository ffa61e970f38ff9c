// Records of the host ring: one head, then a body that depends on its kind.
#pragma once

#include <cstdint>

#include "agent/core/sites/site_table.h"

namespace plumbline::agent {

enum class SlotKind : uint32_t {
  kCall,            // a call's tensors, as the probe of the site's kind stores them (probes/)
  kEvidence,        // `bytes` bytes of a serialised v1::Evidence, measured on the caller's thread
  kRoutingMessage,  // `bytes` bytes of a serialised v1::Routing, measured on the caller's thread
  kScalar,          // double
  kSpan,            // SpanBody; its name is the site's op
  kStepEnd,         // nothing
};

struct alignas(64) SlotHead {
  SlotKind kind = SlotKind::kScalar;
  uint32_t call = 0;
  int64_t step = 0;
  Site* site = nullptr;  // nullptr for kStepEnd
  uint64_t bytes = 0;    // of the body, if its length is not fixed
  uint64_t rows = 0;     // Evidence.sample_size of kRoutingMessage
  uint64_t order = 0;    // Evidence.order; 0: none
  bool sampled = false;  // the step is a sampled one
  uint32_t thread = 0;   // of kStepEnd: the thread that ended it
  uint64_t at_ns = 0;    // of kStepEnd: time of the end, monotonic
};
static_assert(sizeof(SlotHead) == 64);

struct SpanBody {
  int32_t kind = 0;     // v1::Span::Kind
  uint32_t thread = 0;  // the thread that began it
  uint64_t start_unix_ns = 0;
  uint64_t start_monotonic_ns = 0;
  uint64_t duration_ns = 0;
};

}  // namespace plumbline::agent
