// Samples of evidence: the raw rows or sampled elements that an item may have besides its summary.
#pragma once

#include <string>

#include "plumbline/v1/evidence.pb.h"

namespace plumbline {
namespace samples {

// Returns true if the message has a sample. For most kinds that is the field `sample`.
template <typename Message>
bool HasSampleOf(const Message& message) {
  return message.has_sample();
}
inline bool HasSampleOf(const v1::Logits& logits) {
  return logits.rows_size() > 0 || logits.worst_size() > 0;
}
inline bool HasSampleOf(const v1::Logprobs& logprobs) { return logprobs.sequences_size() > 0; }

template <typename Message>
void ClearSampleOf(Message* message) {
  message->clear_sample();
}
inline void ClearSampleOf(v1::Logits* logits) {
  logits->clear_rows();
  logits->clear_worst();
}
inline void ClearSampleOf(v1::Logprobs* logprobs) { logprobs->clear_sequences(); }

}  // namespace samples

// Returns true if the item has raw rows or sampled elements.
inline bool HasSample(const v1::Evidence& e) {
  switch (e.what_case()) {
#define PLUMB_KIND(Name, NAME, name, number, op) \
  case v1::Evidence::k##Name:                    \
    return samples::HasSampleOf(e.name());
#include "proto/evidence_kinds.inc"
    default:
      return false;
  }
}

// Removes an item's raw rows and sets the reason in its summary. Returns false if it has none.
// Counts no loss.
inline bool RemoveSample(v1::Evidence* e, const std::string& reason) {
  if (!HasSample(*e)) return false;
  switch (e->what_case()) {
#define PLUMB_KIND(Name, NAME, name, number, op)       \
  case v1::Evidence::k##Name:                          \
    samples::ClearSampleOf(e->mutable_##name());       \
    e->mutable_##name()->set_no_sample_reason(reason); \
    return true;
#include "proto/evidence_kinds.inc"
    default:
      return false;
  }
}

}  // namespace plumbline
