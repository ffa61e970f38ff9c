#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/types/optional.h"
#include "audit/readers/dumps/kind.h"

namespace plumbline::audit {
namespace {

constexpr char kBytePayload[] = "plumbline/byte";

// Returns a text such as "routing, tensor or update".
std::string JudgedKinds() {
  std::string text;
  const auto& kinds = DumpKinds();
  for (size_t i = 0; i < kinds.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == kinds.size() ? " or " : ", ") + std::string(kinds[i]->name);
  }
  return text;
}

}  // namespace

const std::vector<const DumpKind*>& DumpKinds() {
  static const std::vector<const DumpKind*> kKinds = {
#define PLUMB_KIND(Name, NAME, name, number, op) &k##Name##Dump,
#define PLUMB_KIND_WITHOUT_DUMP(Name, NAME, name, number, op)
#include "proto/evidence_kinds.inc"
  };
  return kKinds;
}

absl::Status AtByte(absl::Status status, uint64_t byte) {
  status.SetPayload(kBytePayload, absl::Cord(std::to_string(byte)));
  return status;
}

uint64_t ByteOf(const absl::Status& status) {
  const absl::optional<absl::Cord> byte = status.GetPayload(kBytePayload);
  return byte ? std::stoull(std::string(*byte)) : 0;
}

const DumpKind* KindOf(const SafetensorsHeader& header, InputReport* report) {
  const auto& kinds = DumpKinds();
  const MetadataEntry* entry = header.Metadata("kind");
  const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const DumpKind* kind) {
    return entry == nullptr ? kind->looks_like(header) : entry->value == kind->name;
  });
  if (found != kinds.end()) return *found;
  if (entry == nullptr) {
    report->Add(0, "expected metadata kind (" + JudgedKinds() + "), found none", report->named);
  } else {
    report->Add(entry->declared_at,
                "expected kind " + JudgedKinds() + ", found " + Quoted(entry->value));
  }
  return nullptr;
}

}  // namespace plumbline::audit
