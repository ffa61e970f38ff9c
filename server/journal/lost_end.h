// A checkpoint that is newer than the journal's end proves that the journal has lost entries: a
// host that lost its memory, a copy that was cut short. What the checkpoint knows of them is all
// there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/journal/checkpoint_file.h"
#include "server/journal/journal_scan.h"

namespace plumbline::server {

// The newest entry that the journal held when the checkpoint was made.
uint64_t NewestEntryOf(const CheckpointName& name);
// Of all of them, whether they can be read or not: they have their names since they were durable.
// 0: there is none.
uint64_t NewestEntryOf(const std::vector<CheckpointName>& checkpoints);

// Where the checkpoints are newer than the scan: what is gone becomes a loss like others, its
// numbers are used up, and streams go on where `restored` has judged them.
void AddLostEnd(const std::string& journal, const std::vector<CheckpointName>& checkpoints,
                const Checkpoint& restored, size_t max_streams, JournalScan* scan);

}  // namespace plumbline::server
