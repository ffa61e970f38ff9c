// A kind of dump: how its header is checked and its tensors become evidence. One file a kind
// (dumps/routing.cc, ...), listed in proto/evidence_kinds.inc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "audit/readers/input/file.h"
#include "audit/readers/input/reader.h"
#include "audit/readers/safetensors/header.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

struct DumpKind {
  const char* name;  // metadata `kind`

  // True when the tensors can only be of this kind, for dumps that do not say it.
  bool (*looks_like)(const SafetensorsHeader& header);

  // Names, dtypes, shapes and metadata values, and that the tensors fit one message. What is well
  // formed but cannot be judged is left to the rules, which answer inconclusive.
  void (*check)(const SafetensorsHeader& header, std::vector<Problem>* problems);

  // The site's op where the metadata names none.
  std::string (*default_op)(const SafetensorsHeader& header);

  // Fills evidence->what, sample_size and exercised; site and step are set. The header has been
  // through `check` without a problem.
  absl::Status (*load)(const InputFile& file, const SafetensorsHeader& header,
                       v1::Evidence* evidence);
};

// One a kind, each in the file of its name.
#define PLUMB_KIND(Name, NAME, name, number, op) extern const DumpKind k##Name##Dump;
#define PLUMB_KIND_WITHOUT_DUMP(Name, NAME, name, number, op)
#include "proto/evidence_kinds.inc"

// Says at which byte of the file the problem lies that a load's status tells of.
absl::Status AtByte(absl::Status status, uint64_t byte);
uint64_t ByteOf(const absl::Status& status);  // 0 where it was not said

// Every kind that this version judges. Static storage.
const std::vector<const DumpKind*>& DumpKinds();

// The dump's kind by its metadata, else by its tensors; nullptr when it is none that is judged, and
// then its report says why.
const DumpKind* KindOf(const SafetensorsHeader& header, InputReport* report);

}  // namespace plumbline::audit
