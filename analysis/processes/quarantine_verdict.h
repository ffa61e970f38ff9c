// The finding about a run that is not judged, and its form in the journal. It does not follow from
// evidence, so a server that quarantines a run records the finding as an update of the incident,
// which opens the incident. Every later reader of the journal (a restart, an audit of the stored
// run) reports the same from this update alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plumbline/v1/finding.pb.h"
#include "plumbline/v1/journal_event.pb.h"

namespace plumbline::analysis {

inline constexpr const char* kQuarantineRule = "meta/data-loss";

// `reason` is the reason of the quarantine. `entry` is the journal entry up to which the run was
// judged.
v1::Verdict QuarantineVerdict(const std::string& run, const std::string& reason, uint64_t entry);

// Returns the finding's form in the journal: an update without an action, by "plumbd", of the
// incident named "quarantine:RUN" instead of by a fingerprint, so that it belongs to no other
// finding. Older servers ignore an update without an action.
v1::IncidentUpdate QuarantineUpdate(const std::string& run, const std::string& reason,
                                    uint64_t entry);
// Returns the finding that the event opens. If it is another event, returns nullopt.
std::optional<v1::Verdict> QuarantineOpened(const v1::JudgeEvent& event);

}  // namespace plumbline::analysis
