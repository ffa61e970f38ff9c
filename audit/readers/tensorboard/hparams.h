// Reads the hyperparameters in a run's event file (add_hparams, tensorboard.plugins.hparams).
#pragma once

#include <string_view>

#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit {

// `metadata` is the SummaryMetadata of a value "_hparams_/session_start_info". Adds each
// hyperparameter to the sink. Returns false if the bytes are not a SummaryMetadata with
// hyperparameters.
bool ReadHparams(std::string_view metadata, PointSink* sink);

}  // namespace plumbline::audit
