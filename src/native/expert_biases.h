// SPDX-License-Identifier: MIT
// Loads the biases of a model's experts from its file to a device. The biases in memory are loaded
// only after devices are tried.
#pragma once

#include "base/result.h"
#include "compute/devices.h"
#include "core/ids.h"
#include "devices/device_biases.h"
#include "devices/device_probe.h"
#include "model/model_file.h"

namespace moestro {

DeviceBiases::Shape BiasShapeOf(const ModelFile& model);

// Empty if the model has no biases. kIo, kNoMemory, kDevice.
Result<DeviceBiases> LoadBiasesOn(const ComputeDevice& device, const ModelFile& model);

// The biases of one expert. kIo.
Result<DeviceProbe::Biases> ReadBiasesOf(ExpertKey key, const ModelFile& model);

}  // namespace moestro
