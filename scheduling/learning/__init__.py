"""Learned co-placement: images of resource histories, the network that scores them, and its training.

Source: "A Job Placement Using Reinforcement Learning in GPU Virtualization Environment" (MSc thesis, Sookmyung Women's
University, 2019), and DeepRM (Mao et al., HotNets 2016) where the thesis is silent. Deciding needs numpy only;
`training` imports PyTorch.
"""
