// SPDX-License-Identifier: MIT
// The biases of a model's experts, from its file to a device: what is in memory is loaded later
// than a device is tried.
#pragma once

#include "base/result.h"
#include "core/ids.h"
#include "device/device_biases.h"
#include "device/devices.h"
#include "forward/experts/device_probe.h"
#include "model/model_file.h"

namespace moestro {

DeviceBiases::Shape BiasShapeOf(const ModelFile& model);

// None, if the model has none. kIo, kNoMemory, kDevice.
Result<DeviceBiases> LoadBiasesOn(const ComputeDevice& device, const ModelFile& model);

// Those of one expert. kIo.
Result<DeviceProbe::Biases> ReadBiasesOf(ExpertKey key, const ModelFile& model);

}  // namespace moestro
