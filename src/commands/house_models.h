// SPDX-License-Identifier: MIT
// The models of `moestro serve --models`: which files, under which names, with which flags.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/program.h"
#include "commands/settings.h"
#include "house/model_list.h"

namespace moestro {

// The parts of a command line that say what a house serves.
struct HouseWish {
  std::string models = {};              // a folder, or files and names between commas
  std::vector<FlagSetting> flags = {};  // of single models: ParseModelFlag()
  std::vector<std::string> given = {};  // the command's arguments, which hold for all models
  double keep_alive = -1.0;             // seconds; negative: for ever
};

// Turns a name that is no path into a file's path: the hub's cache, "demo".
using FindModelFile = std::function<Result<std::string>(const std::string& text)>;

// The models in the order of the list, or of a folder's names, then those that only sections name.
// A model's flags go before those of the whole command. kUsage: names that collide, a section whose
// model is not in the list and names no file, a flag that no single model can have, a wrong value.
// kIo: the folder cannot be read; a file of the list that does not exist. Errors of `find`.
Result<std::vector<HouseModel>> ReadHouseModels(const HouseWish& wish, const CommandText& command,
                                                const FindModelFile& find);

}  // namespace moestro
