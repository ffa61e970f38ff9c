// Interprets names of losses: their role, and the part of the whole loss that they are.
#pragma once

#include <string_view>

#include "analysis/role/name_words.h"
#include "analysis/role/role.h"

namespace plumbline {

// Returns kLoss, kEvaluationLoss or kAuxiliaryLoss; kNone if the name is not of a loss.
SeriesRole LossRoleOf(std::string_view name, const NameWords& words);
// If the name is of the loss of a side of a game, returns this side; else kNone.
GameSide GameSideOf(std::string_view name, const NameWords& words);
// Returns true for words of a training loss that is minimised as a whole, unlike "sync_loss" or
// "depth_loss".
bool NamesTheWhole(const NameWords& words);
// Returns true for words of a part of a loss: "l1_loss", "cls_loss".
bool NamesAPart(const NameWords& words);
// Returns true for the loss of a detector's boxes, which is 0 if no image has a label.
bool NamesBoxes(const NameWords& words);

}  // namespace plumbline
