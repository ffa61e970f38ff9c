// Names of losses: which role they have, and which part of the whole they are.
#pragma once

#include <string_view>

#include "analysis/role/name_words.h"
#include "analysis/role/role.h"

namespace plumbline {

// Returns kLoss, kEvaluationLoss or kAuxiliaryLoss; kNone if the name is of no loss.
SeriesRole LossRoleOf(std::string_view name, const NameWords& words);
// Returns the side of a game whose loss the name is of, or kNone.
GameSide GameSideOf(std::string_view name, const NameWords& words);
// Returns true for words of a training loss that is minimised as a whole, as against "sync_loss" or
// "depth_loss".
bool NamesTheWhole(const NameWords& words);
// Returns true for words of a part of a loss: "l1_loss", "cls_loss".
bool NamesAPart(const NameWords& words);
// Returns true for the loss of a detector's boxes, which is 0 if no image has a label.
bool NamesBoxes(const NameWords& words);

}  // namespace plumbline
