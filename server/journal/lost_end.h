// Handles a checkpoint that is newer than the journal's end. It proves that the journal has lost
// entries: the host lost its memory, or a copy was cut short. Only their effect on the checkpoint's
// state remains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/journal/checkpoint_file.h"
#include "server/journal/journal_scan.h"

namespace plumbline::server {

// Returns the newest entry that the journal held when the checkpoint was made.
uint64_t NewestEntryOf(const CheckpointName& name);
// Returns the newest such entry of all checkpoints, readable or not, since a checkpoint gets its
// name once it is durable. 0: there is none.
uint64_t NewestEntryOf(const std::vector<CheckpointName>& checkpoints);

// If the checkpoints are newer than the scan, adds the missing entries as a loss, marks their
// numbers as used, and lets streams continue where `restored` has judged them.
void AddLostEnd(const std::string& journal, const std::vector<CheckpointName>& checkpoints,
                const Checkpoint& restored, size_t max_streams, JournalScan* scan);

}  // namespace plumbline::server
